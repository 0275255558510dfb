#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "utils/compute/core/status.h"
#include "utils/files/files.h"

namespace official::files {
namespace {

constexpr size_t kRandomDigits = 8;

absl::StatusOr<std::string> NewTemporaryPath(const std::string& path) {
  uint32_t random;
  if (RetryInterrupted([&] { return getrandom(&random, sizeof(random), 0); }) != sizeof(random)) {
    return ErrnoStatus(errno, "get random bytes for", path);
  }
  return absl::StrFormat("%s%s-%08x", path, kTemporarySuffix, random);
}

// Locks an open file against others that ask for the lock. Not on file systems without locks.
bool Lock(int fd) {
  return RetryInterrupted([&] { return flock(fd, LOCK_EX | LOCK_NB); }) == 0;
}

// Whether the file that is open as `fd` still has the name `path`.
bool HasName(int fd, const std::string& path) {
  struct stat file, named;
  return fstat(fd, &file) == 0 && lstat(path.c_str(), &named) == 0 && file.st_dev == named.st_dev &&
         file.st_ino == named.st_ino;
}

std::string BaseName(const std::string& path) { return path.substr(path.rfind('/') + 1); }

// Names in /dev and /proc, which stand for what the process has open, and must not be replaced.
bool IsOfTheSystem(const std::string& path) {
  std::error_code error;
  const std::string directory = std::filesystem::canonical(DirectoryOf(path), error).string();
  return directory == "/dev" || absl::StartsWith(directory, "/proc/");
}

// Whether a path is written to as it is, and not replaced.
bool IsWrittenInPlace(const std::string& path) {
  struct stat info;
  const bool exists = lstat(path.c_str(), &info) == 0;
  return IsOfTheSystem(path) || (exists && (S_ISFIFO(info.st_mode) || S_ISCHR(info.st_mode)));
}

absl::Status WriteInPlace(const std::string& path, absl::string_view contents) {
  // O_NONBLOCK for the opening alone: a pipe without a reader is an error, and one with a slow reader is none.
  const int flags = O_WRONLY | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
  const int fd = RetryInterrupted([&] { return open(path.c_str(), flags); });
  if (fd < 0 && errno == ENXIO) {
    return absl::FailedPreconditionError(absl::StrCat("cannot write ", path, ": no process reads from this pipe"));
  }
  if (fd < 0) return ErrnoStatus(errno, "write", path);
  fcntl(fd, F_SETFL, O_APPEND);
  FileWriter writer(path, fd);
  RETURN_IF_ERROR(writer.Append(contents));
  return writer.Close();
}

}  // namespace

std::optional<std::string> FinalNameOf(absl::string_view temporary_name) {
  const size_t suffix_size = kTemporarySuffix.size() + 1 + kRandomDigits;
  if (temporary_name.size() <= suffix_size) return std::nullopt;
  const size_t final_size = temporary_name.size() - suffix_size;
  const absl::string_view suffix = temporary_name.substr(final_size);
  const absl::string_view digits = suffix.substr(kTemporarySuffix.size() + 1);
  if (!absl::StartsWith(suffix, absl::StrCat(kTemporarySuffix, "-")) ||
      digits.find_first_not_of("0123456789abcdef") != digits.npos) {
    return std::nullopt;
  }
  return std::string(temporary_name.substr(0, final_size));
}

void RemoveAbandoned(const std::string& path) {
  const std::string directory = DirectoryOf(path), final_name = BaseName(path);
  const absl::StatusOr<std::vector<std::string>> names = ListDirectory(directory);
  if (!names.ok()) return;  // whoever makes a file there is told why
  for (const std::string& name : *names) {
    if (FinalNameOf(name) != final_name) continue;
    const std::string temporary = JoinPath(directory, name);
    const absl::StatusOr<int> fd = OpenRegularFile(temporary, O_RDWR);
    if (!fd.ok()) continue;
    if (Lock(*fd)) RemoveFile(temporary).IgnoreError();
    close(*fd);
  }
}

absl::StatusOr<std::unique_ptr<AtomicFile>> AtomicFile::Create(const std::string& path) {
  RemoveAbandoned(path);
  constexpr int kAttempts = 100;
  for (int attempt = 1;; ++attempt) {
    ASSIGN_OR_RETURN(const std::string temporary, NewTemporaryPath(path));
    absl::StatusOr<std::unique_ptr<FileWriter>> writer = FileWriter::Open(temporary, FileWriter::Mode::kCreateNew);
    if (absl::IsAlreadyExists(writer.status()) && attempt < kAttempts) continue;
    RETURN_IF_ERROR(writer.status());
    std::unique_ptr<AtomicFile> file(new AtomicFile(path, *std::move(writer)));
    // Before it has the lock, another writer of the path may take it for abandoned, and have removed it or be about to.
    const bool is_taken = !Lock(file->writer_->fd()) && errno == EWOULDBLOCK;
    if ((!is_taken && HasName(file->writer_->fd(), temporary)) || attempt == kAttempts) return file;
  }
}

AtomicFile::~AtomicFile() {
  if (!keep_temporary_) RemoveFile(writer_->path()).IgnoreError();
  Unlock();
}

void AtomicFile::Unlock() {
  // The bytes are synced, and the writer's own descriptor was closed without an error: this close cannot lose any.
  if (lock_fd_ >= 0) close(std::exchange(lock_fd_, -1));
}

absl::Status AtomicFile::Finish() {
  RETURN_IF_ERROR(writer_->Sync());
  lock_fd_ = fcntl(writer_->fd(), F_DUPFD_CLOEXEC, 0);
  if (lock_fd_ < 0) return ErrnoStatus(errno, "keep open", writer_->path());
  return writer_->Close();
}

absl::Status AtomicFile::Publish() {
  RETURN_IF_ERROR(Rename(writer_->path(), path_));
  KeepTemporary();  // there is none any more
  Unlock();
  return absl::OkStatus();
}

absl::Status WriteFileAtomically(const std::string& path, absl::string_view contents) {
  ASSIGN_OR_RETURN(const std::unique_ptr<AtomicFile> file, AtomicFile::Create(path));
  RETURN_IF_ERROR(file->Append(contents));
  RETURN_IF_ERROR(file->Finish());
  RETURN_IF_ERROR(file->Publish());
  return SyncDirectory(DirectoryOf(path));
}

absl::Status WriteOutput(const std::string& path, absl::string_view contents) {
  if (IsWrittenInPlace(path)) return WriteInPlace(path, contents);
  RETURN_IF_ERROR(CheckRegularOrMissing(path));
  return WriteFileAtomically(path, contents);
}

absl::Status CheckOutput(const std::string& path) {
  if (!IsWrittenInPlace(path)) {
    RETURN_IF_ERROR(CheckRegularOrMissing(path));
    const std::string directory = DirectoryOf(path);
    if (Exists(directory)) return CheckCanWriteIn(directory);
    return absl::FailedPreconditionError(
        absl::StrCat("cannot write ", path, ": there is no directory ", directory, "; make it first"));
  }
  if (RetryInterrupted([&] { return access(path.c_str(), W_OK); }) == 0) return absl::OkStatus();
  return ErrnoStatus(errno, "write", path);
}

}  // namespace official::files
