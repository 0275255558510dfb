// The lock by which only one run at a time writes in a model_dir.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace official::train {

// The name of the lock file in model_dir. It holds the process id, host and start time of the run that has the lock,
// and is removed when that run ends. What counts is the lock on the file, which ends with the process that holds it,
// however that ends: the file of a run that was killed stays and blocks nobody.
inline constexpr char kRunLockFile[] = "run.lock";

class RunLock {
 public:
  // Makes the directory if necessary; it is removed with the lock if nothing was written to it. AlreadyExists names the
  // process that has the lock; else an error of the file system. One without locks refuses nobody, and a warning is
  // logged.
  static absl::StatusOr<std::unique_ptr<RunLock>> Acquire(const std::string& model_dir);
  // Returns who has the lock of a directory, "process 12 on host since ..."; nothing if nobody has. Takes it for a
  // moment, in which Acquire fails: who may be watched tries again.
  static std::optional<std::string> HolderOf(const std::string& model_dir);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  RunLock(std::string path, int fd, std::string new_dir)
      : path_(std::move(path)), fd_(fd), new_dir_(std::move(new_dir)) {}

  const std::string path_;
  const int fd_;
  const std::string new_dir_;  // that was made for the lock; empty if it was there before
};

}  // namespace official::train
