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
  // kShare: an error goes to those that have waited for this compilation, and who comes later tries again. kKeep: it is
  // returned until ForgetErrors.
  enum class Errors { kShare, kKeep };
  using CompileFn = std::function<absl::StatusOr<std::unique_ptr<PjrtExecutable>>()>;

  explicit ExecutableCache(Errors errors) : errors_(errors) {}

  // Returns what this text was compiled to, as long as somebody has it; else what `compile` makes of it. Threads that
  // ask for one text wait for each other, those with different ones compile at the same time.
  absl::StatusOr<std::shared_ptr<PjrtExecutable>> Get(const std::string& module, const CompileFn& compile);
  void ForgetErrors();

 private:
  struct Compilation {
    bool is_done = false;
    absl::Status status;
    std::weak_ptr<PjrtExecutable> executable;
  };

  const Errors errors_;
  std::mutex mutex_;
  std::condition_variable done_;
  std::map<std::string, std::shared_ptr<Compilation>> compilations_;  // by module
};

}  // namespace official::compute
