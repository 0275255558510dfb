// Files on a local file system: whole and atomic writes, bounded reads, and the one place where errno becomes a Status.
//
// What is written is written into regular files only. In a directory that others can write, such as /tmp, a name may
// lead elsewhere: a symbolic link to a file of the user's that must not change, or a pipe that nobody reads. Opening
// either for writing is an error, at once; temporary files have names that nobody can foresee.
#pragma once

#include <cerrno>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace official::files {

// The end of a name whose file is not complete: a download that can be continued. Files of AtomicFile append eight
// random hexadecimal digits to it. Readers ignore such names.
inline constexpr absl::string_view kTemporarySuffix = ".incomplete";

// Makes a system call again for as long as signals interrupt it. Returns what it returns.
template <typename Call>
auto RetryInterrupted(Call call) {
  while (true) {
    const auto result = call();
    if (result >= 0 || errno != EINTR) return result;
  }
}

// "cannot <action> <path>: <reason>", for a disk that is full with the bytes left on it. The code says what went wrong:
// NotFound (no such file), PermissionDenied, FailedPrecondition (cannot be created there), ResourceExhausted (memory),
// Aborted (a full disk, too many files, any other input or output error).
absl::Status ErrnoStatus(int error_number, absl::string_view action, absl::string_view path);

// Opens a regular file with the flags of open(2) and returns the descriptor; a new file is readable and writable as the
// umask permits. Never waits for the other end of a pipe. What is no regular file is refused: for reading with
// NotFound; for writing with FailedPrecondition, symbolic links included.
absl::StatusOr<int> OpenRegularFile(const std::string& path, int flags);

// FailedPrecondition if the name is taken by anything but a regular file, a symbolic link included.
absl::Status CheckRegularOrMissing(const std::string& path);

// PermissionDenied if there is such a directory and it, or a symbolic link of that name, belongs to another user.
absl::Status CheckOwner(const std::string& directory);

// Appends to a file that it creates, through a buffer. Not synchronized: one thread at a time.
class FileWriter {
 public:
  // kCreateNew: AlreadyExists if there is such a file. kAppend: what is in the file stays before what is written.
  enum class Mode { kReplace, kCreateNew, kAppend };
  // Regular files only: see OpenRegularFile.
  static absl::StatusOr<std::unique_ptr<FileWriter>> Open(const std::string& path, Mode mode = Mode::kReplace);
  // Takes over a descriptor that is open for writing.
  FileWriter(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;
  ~FileWriter();  // closes; bytes not flushed are lost

  absl::Status Append(absl::string_view data);
  // Hands the buffer to the system, so that other processes see it.
  absl::Status Flush();
  // Flush, and waits until the bytes are on the disk.
  absl::Status Sync();
  // Flush and close. Nothing may be appended afterwards.
  absl::Status Close();

  const std::string& path() const { return path_; }
  int fd() const { return fd_; }
  // Bytes appended so far.
  int64_t size() const { return size_; }

 private:
  absl::Status WriteFully(absl::string_view data);

  std::string path_;
  int fd_;
  std::string buffer_;
  int64_t size_ = 0;
};

// A file that appears under its name only when it is complete. Until then it has a temporary name beside it, and the
// destructor removes it if it was not published. Publishing replaces whatever has the name, a symbolic link too.
class AtomicFile {
 public:
  // First removes the temporary files that killed writers of the same path have left.
  static absl::StatusOr<std::unique_ptr<AtomicFile>> Create(const std::string& path);
  ~AtomicFile();

  absl::Status Append(absl::string_view data) { return writer_->Append(data); }
  // Puts the bytes on the disk, still under the temporary name.
  absl::Status Finish();
  // Gives the finished file its name. Durable after SyncDirectory().
  absl::Status Publish();
  // Lets the temporary file stay, for whoever repairs what has failed.
  void KeepTemporary() { keep_temporary_ = true; }

  // For others that write into the file; until Finish.
  FileWriter& writer() { return *writer_; }
  const std::string& temporary_path() const { return writer_->path(); }
  int64_t size() const { return writer_->size(); }

 private:
  AtomicFile(std::string path, std::unique_ptr<FileWriter> writer)
      : path_(std::move(path)), writer_(std::move(writer)) {}
  void Unlock();

  std::string path_;
  std::unique_ptr<FileWriter> writer_;
  // Holds the lock on the temporary file between Finish and Publish: without a lock it counts as one of a killed
  // writer.
  int lock_fd_ = -1;
  bool keep_temporary_ = false;
};

// The name that a temporary file of AtomicFile gets when it is published; nothing for names of other files.
std::optional<std::string> FinalNameOf(absl::string_view temporary_name);

// Replaces or creates the file in one durable step: a crash leaves the old contents or the new.
absl::Status WriteFileAtomically(const std::string& path, absl::string_view contents);

// The same for a path that the user has chosen, which may also be a pipe, a terminal or another name of the system's
// (/dev/stdout, /dev/null, /dev/fd/3): that is written to as it is. A pipe must have a reader already. A symbolic link
// is refused with FailedPrecondition.
absl::Status WriteOutput(const std::string& path, absl::string_view contents);

// Why WriteOutput would fail, as far as that can be told without opening or making anything.
absl::Status CheckOutput(const std::string& path);

// Reads anywhere in a regular file. Other kinds (directories, pipes, devices) are refused with NotFound.
class RandomAccessFile {
 public:
  static absl::StatusOr<std::unique_ptr<RandomAccessFile>> Open(const std::string& path);
  RandomAccessFile(const RandomAccessFile&) = delete;
  RandomAccessFile& operator=(const RandomAccessFile&) = delete;
  ~RandomAccessFile();

  // Exactly `size` bytes from `offset` on; DataLoss if the file ends before.
  absl::Status Read(int64_t offset, int64_t size, void* destination) const;
  // Up to `size` bytes from `offset` on; how many there were, 0 at the end of the file.
  absl::StatusOr<int64_t> ReadSome(int64_t offset, int64_t size, void* destination) const;

  const std::string& path() const { return path_; }
  int fd() const { return fd_; }
  // Bytes in the file when it was opened.
  int64_t size() const { return size_; }
  // When it was last changed before that, in nanoseconds since 1970.
  int64_t modified_ns() const { return modified_ns_; }

 private:
  RandomAccessFile(std::string path, int fd, int64_t size, int64_t modified_ns)
      : path_(std::move(path)), fd_(fd), size_(size), modified_ns_(modified_ns) {}

  std::string path_;
  int fd_;
  int64_t size_;
  int64_t modified_ns_;
};

// All bytes of a file; DataLoss, before anything is allocated, if there are more than `max_bytes`.
absl::StatusOr<std::string> ReadFile(const std::string& path, int64_t max_bytes);

bool Exists(const std::string& path);
// The directory and its missing parents. No error if it exists.
absl::Status MakeDirectories(const std::string& path);
// An error if files could not be made in the directory or, where it is missing, the directory not be made. Makes
// nothing, so that hours of work may come before the first file.
absl::Status CheckCanWriteIn(const std::string& directory);
// A directory that nobody has made before: AlreadyExists if the name is taken.
absl::Status MakeNewDirectory(const std::string& path);
// Names (without the directory) of everything in a directory, sorted.
absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& path);
absl::Status Rename(const std::string& from, const std::string& to);
// No error if there is no such file.
absl::Status RemoveFile(const std::string& path);
// Makes renames and new names in a directory durable.
absl::Status SyncDirectory(const std::string& path);
// "a/b" of "a/b/c", "." of "c", "/" of "/c".
std::string DirectoryOf(const std::string& path);
// `name` itself if it is absolute, else directory + "/" + name.
std::string JoinPath(const std::string& directory, absl::string_view name);

}  // namespace official::files
