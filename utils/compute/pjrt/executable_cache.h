// ExecutableCache: each module is compiled once for all that want to run it, since that may take minutes.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace official::compute {

class PjrtExecutable;

class ExecutableCache {
 public:
  using CompileFn = std::function<absl::StatusOr<std::unique_ptr<PjrtExecutable>>()>;

  // Returns what this text was compiled to, as long as somebody has it, or the error of that, until ForgetErrors; else
  // what `compile` makes of it, or ResourceExhausted if that throws std::bad_alloc. Threads that ask for one text wait
  // for each other, those with different ones compile at the same time.
  absl::StatusOr<std::shared_ptr<PjrtExecutable>> Get(const std::string& module, const CompileFn& compile);
  // From now on, what could not be compiled is compiled again. Those that have waited for it still get the error.
  void ForgetErrors();

 private:
  struct Compilation {
    bool is_done = false;
    absl::Status status;
    std::weak_ptr<PjrtExecutable> executable;
  };

  std::mutex mutex_;
  std::condition_variable done_;
  std::map<std::string, std::shared_ptr<Compilation>> compilations_;  // by module
};

}  // namespace official::compute
