#include "utils/files/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/check.h"
#include "utils/compute/core/status.h"

namespace official::files {
namespace {

constexpr size_t kBufferBytes = 1 << 16;

absl::StatusCode CodeOf(int error_number) {
  switch (error_number) {
    case ENOENT:
    case ENOTDIR:
    case EISDIR:
    case ELOOP:
    case ENAMETOOLONG:
      return absl::StatusCode::kNotFound;
    case EACCES:
    case EPERM:
      return absl::StatusCode::kPermissionDenied;
    case EEXIST:
      return absl::StatusCode::kAlreadyExists;
    case EROFS:
    case ENOTEMPTY:
      return absl::StatusCode::kFailedPrecondition;
    case ENOMEM:
      return absl::StatusCode::kResourceExhausted;
    default:
      return absl::StatusCode::kAborted;
  }
}

// For names that are to be made: a parent that is missing or no directory is then not missing input, but a place where
// nothing can be created.
absl::Status CreateStatus(int error_number, absl::string_view action, absl::string_view path) {
  const absl::Status status = ErrnoStatus(error_number, action, path);
  return absl::IsNotFound(status) ? absl::FailedPreconditionError(status.message()) : status;
}

// What a name stands for.
absl::string_view KindOf(mode_t mode) {
  if (S_ISREG(mode)) return "a file";
  if (S_ISLNK(mode)) return "a symbolic link";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

absl::Status NotRegular(const std::string& path, mode_t mode) {
  return absl::FailedPreconditionError(absl::StrCat("cannot write ", path, ": it is ", KindOf(mode),
                                                    ", not a regular file; remove it, or write elsewhere"));
}

bool IsReadOnly(int flags) { return (flags & O_ACCMODE) == O_RDONLY; }

// Why a file could not be opened.
absl::Status OpenError(int error_number, const std::string& path, int flags) {
  if (IsReadOnly(flags)) return ErrnoStatus(error_number, "read", path);
  struct stat info;
  // The errors that links, pipes, sockets and devices cause. Some kernels refuse other users' pipes with EACCES.
  const bool may_be_special = error_number == ELOOP || error_number == ENXIO || error_number == EACCES;
  if (may_be_special && lstat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode))
    return NotRegular(path, info.st_mode);
  return CreateStatus(error_number, (flags & O_CREAT) != 0 ? "create" : "open", path);
}

}  // namespace

absl::Status ErrnoStatus(int error_number, absl::string_view action, absl::string_view path) {
  std::string message = absl::StrCat("cannot ", action, " ", path, ": ", std::generic_category().message(error_number));
  struct statvfs disk;
  if (error_number == ENOSPC && statvfs(DirectoryOf(std::string(path)).c_str(), &disk) == 0) {
    absl::StrAppend(&message, " (", static_cast<uint64_t>(disk.f_bavail) * disk.f_frsize, " bytes and ", disk.f_favail,
                    " files are free there)");
  }
  return absl::Status(CodeOf(error_number), message);
}

absl::StatusOr<int> OpenRegularFile(const std::string& path, int flags) {
  // O_NONBLOCK: opening a pipe must not wait for its other end. It changes nothing about regular files.
  const int all_flags = flags | O_CLOEXEC | O_NONBLOCK | (IsReadOnly(flags) ? 0 : O_NOFOLLOW);
  const int fd = RetryInterrupted([&] { return open(path.c_str(), all_flags, 0666); });
  if (fd < 0) return OpenError(errno, path, flags);
  struct stat info;
  const int stat_error = fstat(fd, &info) == 0 ? 0 : errno;
  if (stat_error == 0 && S_ISREG(info.st_mode)) return fd;
  close(fd);
  if (stat_error != 0) return ErrnoStatus(stat_error, IsReadOnly(flags) ? "read" : "write", path);
  if (!IsReadOnly(flags)) return NotRegular(path, info.st_mode);
  return absl::NotFoundError(
      absl::StrCat("cannot read ", path, ": it is ", KindOf(info.st_mode), ", not a regular file"));
}

absl::Status CheckRegularOrMissing(const std::string& path) {
  struct stat info;
  if (lstat(path.c_str(), &info) != 0 || S_ISREG(info.st_mode)) return absl::OkStatus();
  return NotRegular(path, info.st_mode);
}

absl::Status CheckDirectoryOrMissing(const std::string& path) {
  struct stat info;
  if (lstat(path.c_str(), &info) != 0) return absl::OkStatus();
  if (stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("cannot write in ", path, ": it is ", KindOf(info.st_mode),
                                                    ", not a directory; remove it, or write elsewhere"));
}

absl::Status CheckOwner(const std::string& directory) {
  struct stat named, resolved;
  if (lstat(directory.c_str(), &named) != 0 || stat(directory.c_str(), &resolved) != 0) return absl::OkStatus();
  const uid_t user = geteuid();
  if (named.st_uid == user && resolved.st_uid == user) return absl::OkStatus();
  const uid_t owner = named.st_uid != user ? named.st_uid : resolved.st_uid;
  return absl::PermissionDeniedError(
      absl::StrCat("the directory ", directory, " belongs to another user (uid ", owner, "; yours is ", user, ")"));
}

absl::StatusOr<std::unique_ptr<FileWriter>> FileWriter::Open(const std::string& path, Mode mode) {
  const int how = mode == Mode::kCreateNew ? O_EXCL : mode == Mode::kAppend ? O_APPEND : O_TRUNC;
  ASSIGN_OR_RETURN(const int fd, OpenRegularFile(path, O_WRONLY | O_CREAT | how));
  return std::make_unique<FileWriter>(path, fd);
}

FileWriter::~FileWriter() {
  if (fd_ >= 0) close(fd_);
}

absl::Status FileWriter::WriteFully(absl::string_view data) {
  OFFICIAL_CHECK(fd_ >= 0) << path_ << " is closed";
  while (!data.empty()) {
    const ssize_t written = RetryInterrupted([&] { return write(fd_, data.data(), data.size()); });
    if (written < 0) return ErrnoStatus(errno, absl::StrCat("write ", data.size(), " bytes to"), path_);
    data.remove_prefix(written);
  }
  return absl::OkStatus();
}

absl::Status FileWriter::Append(absl::string_view data) {
  size_ += data.size();
  if (buffer_.size() + data.size() < kBufferBytes) {
    buffer_.append(data.data(), data.size());
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(Flush());
  return WriteFully(data);
}

absl::Status FileWriter::Flush() {
  const absl::Status status = WriteFully(buffer_);
  buffer_.clear();
  return status;
}

absl::Status FileWriter::Sync() {
  RETURN_IF_ERROR(Flush());
  if (RetryInterrupted([&] { return fsync(fd_); }) != 0) return ErrnoStatus(errno, "sync", path_);
  return absl::OkStatus();
}

absl::Status FileWriter::Close() {
  RETURN_IF_ERROR(Flush());
  // Not retried when interrupted: Linux has released the descriptor by then.
  if (close(std::exchange(fd_, -1)) != 0 && errno != EINTR) return ErrnoStatus(errno, "close", path_);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<RandomAccessFile>> RandomAccessFile::Open(const std::string& path) {
  ASSIGN_OR_RETURN(const int fd, OpenRegularFile(path, O_RDONLY));
  struct stat info;
  if (fstat(fd, &info) != 0) {
    const int error = errno;
    close(fd);
    return ErrnoStatus(error, "read", path);
  }
  const int64_t modified_ns = int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
  return std::unique_ptr<RandomAccessFile>(new RandomAccessFile(path, fd, info.st_size, modified_ns));
}

RandomAccessFile::~RandomAccessFile() { close(fd_); }

absl::StatusOr<int64_t> RandomAccessFile::ReadSome(int64_t offset, int64_t size, void* destination) const {
  const ssize_t got = RetryInterrupted([&] { return pread(fd_, destination, size, offset); });
  if (got < 0) return ErrnoStatus(errno, absl::StrCat("read ", size, " bytes at offset ", offset, " of"), path_);
  return got;
}

absl::Status RandomAccessFile::Read(int64_t offset, int64_t size, void* destination) const {
  int64_t done = 0;
  while (done < size) {
    ASSIGN_OR_RETURN(const int64_t got, ReadSome(offset + done, size - done, static_cast<char*>(destination) + done));
    if (got == 0) {
      return absl::DataLossError(absl::StrCat(path_, ": ends at byte ", offset + done, ", but ", size,
                                              " bytes were expected at offset ", offset));
    }
    done += got;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadFile(const std::string& path, int64_t max_bytes) {
  ASSIGN_OR_RETURN(const std::unique_ptr<RandomAccessFile> file, RandomAccessFile::Open(path));
  if (file->size() > max_bytes) {
    return absl::DataLossError(
        absl::StrCat(path, ": holds ", file->size(), " bytes; at most ", max_bytes, " are expected in such a file"));
  }
  std::string contents(file->size(), '\0');
  RETURN_IF_ERROR(file->Read(0, contents.size(), contents.data()));
  return contents;
}

bool Exists(const std::string& path) {
  return RetryInterrupted([&] { return access(path.c_str(), F_OK); }) == 0;
}

absl::Status MakeDirectories(const std::string& path) {
  std::error_code error;
  do {
    std::filesystem::create_directories(path, error);
  } while (error == std::errc::interrupted);
  if (!error && !std::filesystem::is_directory(path, error)) error = std::make_error_code(std::errc::not_a_directory);
  if (error) return CreateStatus(error.value(), "create directory", path);
  return absl::OkStatus();
}

absl::Status CheckCanWriteIn(const std::string& directory) {
  std::string path = directory;
  struct stat info;
  // The nearest parent that is there. A link that leads nowhere is there, and no directory.
  while (lstat(path.c_str(), &info) != 0) {
    if (errno != ENOENT) return CreateStatus(errno, "write in", path);
    path = DirectoryOf(path);
  }
  if (stat(path.c_str(), &info) != 0) return CreateStatus(errno, "write in", path);
  if (!S_ISDIR(info.st_mode)) return CreateStatus(ENOTDIR, "write in", path);
  if (RetryInterrupted([&] { return access(path.c_str(), W_OK | X_OK); }) != 0) {
    return CreateStatus(errno, "write in", path);
  }
  return absl::OkStatus();
}

absl::Status MakeNewDirectory(const std::string& path) {
  if (RetryInterrupted([&] { return mkdir(path.c_str(), 0777); }) == 0) return absl::OkStatus();
  return CreateStatus(errno, "create directory", path);
}

absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& path) {
  // Not std::filesystem's iterator: without memory it ends the program (libstdc++ 12) instead of throwing an exception.
  for (;;) {
    std::vector<std::string> names;
    const std::unique_ptr<DIR, int (*)(DIR*)> directory(opendir(path.c_str()), closedir);
    if (directory != nullptr) {
      errno = 0;
      while (const dirent* const entry = readdir(directory.get())) {
        const absl::string_view name = entry->d_name;
        if (name != "." && name != "..") names.emplace_back(name);
        errno = 0;
      }
      if (errno == 0) {
        std::sort(names.begin(), names.end());
        return names;
      }
    }
    if (errno != EINTR) return ErrnoStatus(errno, "list directory", path);
  }
}

absl::Status Rename(const std::string& from, const std::string& to) {
  if (RetryInterrupted([&] { return rename(from.c_str(), to.c_str()); }) != 0) {
    return CreateStatus(errno, absl::StrCat("rename ", from, " to"), to);
  }
  return absl::OkStatus();
}

absl::Status RemoveFile(const std::string& path) {
  if (RetryInterrupted([&] { return unlink(path.c_str()); }) != 0 && errno != ENOENT) {
    return ErrnoStatus(errno, "remove", path);
  }
  return absl::OkStatus();
}

absl::Status SyncDirectory(const std::string& path) {
  const int fd = RetryInterrupted([&] { return open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); });
  if (fd < 0) return ErrnoStatus(errno, "sync directory", path);
  const int error = RetryInterrupted([&] { return fsync(fd); }) == 0 ? 0 : errno;
  close(fd);
  // Some file systems cannot sync a directory and say so with EINVAL; there is nothing more to be done there.
  if (error != 0 && error != EINVAL) return ErrnoStatus(error, "sync directory", path);
  return absl::OkStatus();
}

std::string DirectoryOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string JoinPath(const std::string& directory, absl::string_view name) {
  if (!name.empty() && name[0] == '/') return std::string(name);
  return absl::StrCat(directory, !directory.empty() && directory.back() == '/' ? "" : "/", name);
}

}  // namespace official::files
