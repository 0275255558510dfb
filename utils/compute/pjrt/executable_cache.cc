#include "utils/compute/pjrt/executable_cache.h"

#include <utility>

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
  const auto compilation = std::make_shared<Compilation>();
  compilations_[module] = compilation;
  lock.unlock();
  absl::StatusOr<std::unique_ptr<PjrtExecutable>> compiled = compile();
  std::shared_ptr<PjrtExecutable> executable;
  if (compiled.ok()) executable = *std::move(compiled);
  lock.lock();
  compilation->is_done = true;
  compilation->status = compiled.status();
  compilation->executable = executable;
  if (!compiled.ok() && errors_ == Errors::kShare) {
    std::erase_if(compilations_, [&](const auto& entry) { return entry.second == compilation; });
  }
  done_.notify_all();
  if (!compiled.ok()) return compiled.status();
  return executable;
}

void ExecutableCache::ForgetErrors() {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::erase_if(compilations_, [](const auto& entry) { return !entry.second->status.ok(); });
}

}  // namespace official::compute
