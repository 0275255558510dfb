#include "utils/train/run_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "utils/compute/core/status.h"
#include "utils/files/file_lock.h"
#include "utils/files/files.h"
#include "utils/logs/log.h"

namespace official::train {

namespace {

constexpr int kMaxTries = 100;

// Opens the file of a lock in a directory that is made if necessary.
absl::StatusOr<int> OpenIn(const std::string& model_dir, const std::string& path) {
  RETURN_IF_ERROR(files::MakeDirectories(model_dir));
  return files::OpenRegularFile(path, O_RDWR | O_CREAT);
}

// Whether the file that is open as `fd` still has the name `path`.
bool HasName(int fd, const std::string& path) {
  struct stat file, named;
  return fstat(fd, &file) == 0 && stat(path.c_str(), &named) == 0 && file.st_dev == named.st_dev &&
         file.st_ino == named.st_ino;
}

// What is written in the file of a lock.
std::string ReadHolder(int fd) {
  char holder[256] = "";
  const ssize_t read = files::RetryInterrupted([&] { return pread(fd, holder, sizeof(holder) - 1, 0); });
  const absl::string_view text(holder, read > 0 ? static_cast<size_t>(read) : 0);
  return text.empty() ? "another process" : std::string(absl::StripAsciiWhitespace(text));
}

}  // namespace

std::optional<std::string> RunLock::HolderOf(const std::string& model_dir) {
  const absl::StatusOr<int> fd = files::OpenRegularFile(files::JoinPath(model_dir, kRunLockFile), O_RDONLY);
  if (!fd.ok()) return std::nullopt;
  std::optional<std::string> holder;
  if (files::RetryInterrupted([&] { return flock(*fd, LOCK_SH | LOCK_NB); }) != 0 && errno == EWOULDBLOCK) {
    holder = ReadHolder(*fd);
  }
  close(*fd);
  return holder;
}

absl::StatusOr<std::unique_ptr<RunLock>> RunLock::Acquire(const std::string& model_dir) {
  const std::string path = files::JoinPath(model_dir, kRunLockFile);
  bool is_new = !files::Exists(model_dir);
  absl::StatusOr<int> opened = OpenIn(model_dir, path);
  // The run that made the directory may have ended and removed it meanwhile, and the next may have made it again. These
  // errors are also those of a place where nothing can be made, which the tries do not change.
  const auto failed = [&] {
    return absl::IsFailedPrecondition(opened.status()) || absl::IsAlreadyExists(opened.status());
  };
  for (int i = 1; i < kMaxTries && failed(); ++i) {
    is_new = !files::Exists(model_dir);
    opened = OpenIn(model_dir, path);
  }
  ASSIGN_OR_RETURN(const int fd, opened);
  const absl::StatusOr<files::LockResult> locked = files::TryLock(fd, path);
  if (!locked.ok() || *locked == files::LockResult::kHeldByAnother) {
    const std::string holder = ReadHolder(fd);
    close(fd);
    RETURN_IF_ERROR(locked.status());
    return absl::AlreadyExistsError(absl::StrCat("--model_dir=", model_dir, " is in use by ", holder,
                                                 "; wait for it or choose another --model_dir"));
  }
  // Between the two calls the run that had the lock may have ended and removed its file, which is then nobody's.
  std::unique_ptr<RunLock> lock(new RunLock(path, fd, is_new ? model_dir : ""));
  if (!HasName(fd, path)) return Acquire(model_dir);
  if (*locked == files::LockResult::kUnsupported) {
    LOG(WARNING)
        << "the file system of --model_dir=" << model_dir
        << " has no locks, so nothing keeps a second run out of the directory: start none there until this one "
           "has ended";
  }
  char host[256] = "unknown host";
  gethostname(host, sizeof(host) - 1);
  const std::string text = absl::StrCat("process ", getpid(), " on ", host, " since ",
                                        absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::Now(), absl::UTCTimeZone()), "\n");
  if (files::RetryInterrupted([&] { return ftruncate(fd, 0); }) != 0) return files::ErrnoStatus(errno, "write", path);
  errno = ENOSPC;  // of a write that takes a part of the text only
  const ssize_t written = files::RetryInterrupted([&] { return pwrite(fd, text.data(), text.size(), 0); });
  if (written != static_cast<ssize_t>(text.size())) return files::ErrnoStatus(errno, "write", path);
  return lock;
}

RunLock::~RunLock() {
  // While the lock is held, so that nobody else has one on this file. Who has emptied the directory meanwhile may have
  // made another of that name.
  if (HasName(fd_, path_)) files::RemoveFile(path_).IgnoreError();
  if (!new_dir_.empty()) rmdir(new_dir_.c_str());  // which fails if anything is in it
  close(fd_);
}

}  // namespace official::train
