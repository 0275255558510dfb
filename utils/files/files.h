// Files on a local file system: complete and atomic writes, bounded reads, and the one place where errno becomes a
// Status.
//
// Only regular files are written. In a directory that others can write, such as /tmp, a name may lead elsewhere: a
// symbolic link to a file of the user's that must not change, or a pipe that nobody reads. Opening either for writing
// is an error, at once; temporary files have names that nobody can predict.
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

// The end of the name of an incomplete file, such as a download that can be continued. Files of AtomicFile append eight
// random hexadecimal digits to it. Readers ignore such names.
inline constexpr absl::string_view kTemporarySuffix = ".incomplete";

// Repeats a system call for as long as signals interrupt it. Returns its result.
template <typename Call>
auto RetryInterrupted(Call call) {
  while (true) {
    const auto result = call();
    if (result >= 0 || errno != EINTR) return result;
  }
}

// Returns "cannot <action> <path>: <reason>", for a full disk with the bytes left on it. The code says what went wrong:
// NotFound (no such file), PermissionDenied, FailedPrecondition (cannot be created there), ResourceExhausted (memory),
// Aborted (a full disk, too many files, any other input or output error).
absl::Status ErrnoStatus(int error_number, absl::string_view action, absl::string_view path);

// Opens a regular file with the flags of open(2) and returns the descriptor; a new file is readable and writable as the
// umask permits. Never waits for the other end of a pipe. Other files are refused: for reading with NotFound; for
// writing with FailedPrecondition, symbolic links included.
absl::StatusOr<int> OpenRegularFile(const std::string& path, int flags);

// Returns FailedPrecondition if the name is taken by anything but a regular file, a symbolic link included.
absl::Status CheckRegularOrMissing(const std::string& path);
// The same for anything but a directory or a symbolic link to one.
absl::Status CheckDirectoryOrMissing(const std::string& path);

// Returns PermissionDenied if there is such a directory and it, or a symbolic link of that name, belongs to another
// user.
absl::Status CheckOwner(const std::string& directory);

// Appends to a file that it creates, through a buffer. Not synchronized: one thread at a time.
class FileWriter {
 public:
  // kCreateNew: AlreadyExists if there is such a file. kAppend: the file's present contents stay, before what is
  // written.
  enum class Mode { kReplace, kCreateNew, kAppend };
  // Opens a regular file only: see OpenRegularFile.
  static absl::StatusOr<std::unique_ptr<FileWriter>> Open(const std::string& path, Mode mode = Mode::kReplace);
  // Takes over a descriptor that is open for writing.
  FileWriter(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;
  ~FileWriter();  // closes; bytes not flushed are lost

  absl::Status Append(absl::string_view data);
  // Hands the buffer to the system, so that other processes see it.
  absl::Status Flush();
  // Flushes, and waits until the bytes are on the disk.
  absl::Status Sync();
  // Flushes and closes the file. Nothing may be appended afterwards.
  absl::Status Close();

  const std::string& path() const { return path_; }
  int fd() const { return fd_; }
  // The number of bytes appended so far.
  int64_t size() const { return size_; }

 private:
  absl::Status WriteFully(absl::string_view data);

  std::string path_;
  int fd_;
  std::string buffer_;
  int64_t size_ = 0;
};

// A file that appears under its name only when it is complete. Until then it has a temporary name in the same
// directory, and the destructor removes it if it was not published. Publishing replaces whatever has the name, a
// symbolic link too.
class AtomicFile {
 public:
  // First removes the temporary files that killed writers of the same path have left.
  static absl::StatusOr<std::unique_ptr<AtomicFile>> Create(const std::string& path);
  ~AtomicFile();

  absl::Status Append(absl::string_view data) { return writer_->Append(data); }
  // Puts the bytes on the disk, still under the temporary name.
  absl::Status Finish();
  // Gives the finished file its name, durably after SyncDirectory().
  absl::Status Publish();
  // Keeps the temporary file, for a later repair of what has failed.
  void KeepTemporary() { keep_temporary_ = true; }

  // The writer of the file, for other code that writes into it, until Finish.
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

// Returns the name that a temporary file of AtomicFile gets when it is published; nothing for names of other files.
std::optional<std::string> FinalNameOf(absl::string_view temporary_name);

// Removes the temporary files that killed writers of `path` have left. Those of writers that still write stay: they
// have a lock.
void RemoveAbandoned(const std::string& path);

// Replaces or creates the file in one durable step: a crash leaves the old contents or the new.
absl::Status WriteFileAtomically(const std::string& path, absl::string_view contents);

// Does the same for a path that the user has chosen, which may also be a pipe, a terminal or another special file
// (/dev/stdout, /dev/null, /dev/fd/3), which is written to directly. A pipe must already have a reader. A symbolic link
// is refused with FailedPrecondition.
absl::Status WriteOutput(const std::string& path, absl::string_view contents);

// Returns the error with which WriteOutput would fail, as far as that is known without opening or making anything.
absl::Status CheckOutput(const std::string& path);

// Reads anywhere in a regular file. Other kinds (directories, pipes, devices) are refused with NotFound.
class RandomAccessFile {
 public:
  static absl::StatusOr<std::unique_ptr<RandomAccessFile>> Open(const std::string& path);
  RandomAccessFile(const RandomAccessFile&) = delete;
  RandomAccessFile& operator=(const RandomAccessFile&) = delete;
  ~RandomAccessFile();

  // Reads exactly `size` bytes from `offset` on; DataLoss if the file ends before.
  absl::Status Read(int64_t offset, int64_t size, void* destination) const;
  // Reads up to `size` bytes from `offset` on; returns their number, 0 at the end of the file.
  absl::StatusOr<int64_t> ReadSome(int64_t offset, int64_t size, void* destination) const;

  const std::string& path() const { return path_; }
  int fd() const { return fd_; }
  // The size of the file in bytes when it was opened.
  int64_t size() const { return size_; }
  // The time of the last change before the file was opened, in nanoseconds since 1970.
  int64_t modified_ns() const { return modified_ns_; }

 private:
  RandomAccessFile(std::string path, int fd, int64_t size, int64_t modified_ns)
      : path_(std::move(path)), fd_(fd), size_(size), modified_ns_(modified_ns) {}

  std::string path_;
  int fd_;
  int64_t size_;
  int64_t modified_ns_;
};

// Returns all bytes of a file; DataLoss, before anything is allocated, if there are more than `max_bytes`.
absl::StatusOr<std::string> ReadFile(const std::string& path, int64_t max_bytes);

bool Exists(const std::string& path);
// Makes the directory and its missing parents. No error if it exists.
absl::Status MakeDirectories(const std::string& path);
// Returns an error if files cannot be made in the directory or, where it is missing, it cannot be made. Makes nothing,
// so it can be called long before the first file is written.
absl::Status CheckCanWriteIn(const std::string& directory);
// Makes a new directory: AlreadyExists if the name is taken.
absl::Status MakeNewDirectory(const std::string& path);
// Returns the names (without the directory) of everything in a directory, sorted.
absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& path);
absl::Status Rename(const std::string& from, const std::string& to);
// Removes a file; no error if there is no such file.
absl::Status RemoveFile(const std::string& path);
// Makes renames and new names in a directory durable.
absl::Status SyncDirectory(const std::string& path);
// Returns "a/b" for "a/b/c", "." for "c", "/" for "/c".
std::string DirectoryOf(const std::string& path);
// Returns `name` itself if it is absolute, else directory + "/" + name.
std::string JoinPath(const std::string& directory, absl::string_view name);

}  // namespace official::files
