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
#include "utils/files/files.h"

namespace official::train {

absl::StatusOr<std::unique_ptr<RunLock>> RunLock::Acquire(const std::string& model_dir) {
  RETURN_IF_ERROR(files::MakeDirectories(model_dir));
  const std::string path = files::JoinPath(model_dir, kRunLockFile);
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0) return files::ErrnoStatus(errno, "open", path);
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    const int error = errno;
    char holder[256] = "";
    const ssize_t read = pread(fd, holder, sizeof(holder) - 1, 0);
    const absl::string_view text =
        absl::StripAsciiWhitespace(absl::string_view(holder, read > 0 ? static_cast<size_t>(read) : 0));
    close(fd);
    if (error != EWOULDBLOCK) return files::ErrnoStatus(error, "lock", path);
    return absl::AlreadyExistsError(absl::StrCat("--model_dir=", model_dir, " is in use by ",
                                                 text.empty() ? "another process" : text,
                                                 "; wait for it or choose another --model_dir"));
  }
  std::unique_ptr<RunLock> lock(new RunLock(fd));
  char host[256] = "unknown host";
  gethostname(host, sizeof(host) - 1);
  const std::string text = absl::StrCat("process ", getpid(), " on ", host, " since ",
                                        absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::Now(), absl::UTCTimeZone()), "\n");
  errno = 0;
  if (ftruncate(fd, 0) != 0 || pwrite(fd, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())) {
    return files::ErrnoStatus(errno == 0 ? ENOSPC : errno, "write", path);
  }
  return lock;
}

RunLock::~RunLock() {
  // If this fails a text stays that nobody reads: the file is not locked.
  [[maybe_unused]] const int ignored = ftruncate(fd_, 0);
  close(fd_);
}

}  // namespace official::train
