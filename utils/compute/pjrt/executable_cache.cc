#include "utils/compute/pjrt/executable_cache.h"

#include <exception>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "utils/compute/pjrt/client.h"

namespace official::compute {

absl::StatusOr<std::shared_ptr<PjrtExecutable>> ExecutableCache::Get(const std::string& module,
                                                                     const CompileFn& compile) {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    std::erase_if(compilations_, [](const auto& entry) {
      const Compilation& compilation = *entry.second;
      return compilation.is_done && compilation.status.ok() && compilation.executable.expired();
    });
    const auto found = compilations_.find(module);
    if (found == compilations_.end()) break;
    const std::shared_ptr<Compilation> compilation = found->second;
    done_.wait(lock, [&] { return compilation->is_done; });
    if (!compilation->status.ok()) return compilation->status;
    if (std::shared_ptr<PjrtExecutable> executable = compilation->executable.lock()) return executable;
  }
  // The error for want of memory is made while there is memory.
  absl::StatusOr<std::shared_ptr<PjrtExecutable>> compiled =
      absl::ResourceExhaustedError("there is no memory to compile a program");
  const auto compilation = std::make_shared<Compilation>();
  compilations_[module] = compilation;
  lock.unlock();
  // Nothing is thrown: the others would wait for ever.
  try {
    compiled = compile();
  } catch (const std::bad_alloc&) {
  } catch (const std::exception& exception) {
    compiled = absl::InternalError(absl::StrCat("compiling a program: ", exception.what()));
  }
  lock.lock();
  compilation->is_done = true;
  compilation->status = compiled.status();
  if (compiled.ok()) compilation->executable = *compiled;
  done_.notify_all();
  return compiled;
}

void ExecutableCache::ForgetErrors() {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::erase_if(compilations_, [](const auto& entry) { return !entry.second->status.ok(); });
}

}  // namespace official::compute
