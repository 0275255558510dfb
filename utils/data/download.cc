#include "utils/data/download.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <map>
#include <memory>
#include <thread>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "utils/compute/core/status.h"
#include "utils/data/curl.h"
#include "utils/data/gzip.h"
#include "utils/files/file_lock.h"
#include "utils/files/files.h"
#include "utils/logs/log.h"
#include "utils/logs/task_progress.h"

namespace official::data {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLockPoll{200};
constexpr std::chrono::milliseconds kRetryPause{200};

// "host:port" of a URL.
std::string HostOf(absl::string_view url) {
  const size_t scheme = url.find("://");
  if (scheme != absl::string_view::npos) url.remove_prefix(scheme + 3);
  return std::string(url.substr(0, url.find('/')));
}

std::string Megabytes(int64_t bytes) { return absl::StrFormat("%.1f MB", bytes / 1e6); }

// Logs, once in the process, that downloads to where `path` is are not locked.
void WarnOfNoLocks(const std::string& path) {
  static std::atomic<bool> said = false;
  if (said.exchange(true)) return;
  LOG(WARNING) << "the file system of " << files::DirectoryOf(path)
               << " has no locks, so nothing keeps another process from the files that this one downloads: start no "
                  "other download there until this one has ended";
}

// The temporary file that a download goes to, locked against other processes.
class PartialFile {
 public:
  // Waits for other processes that hold it, until `deadline`.
  static absl::StatusOr<std::unique_ptr<PartialFile>> Open(const RemoteFile& remote, Clock::time_point deadline) {
    const std::string path = absl::StrCat(remote.path, remote.inflated_bytes > 0 ? ".gz" : "", files::kTemporarySuffix);
    bool said = false;
    for (;;) {
      ASSIGN_OR_RETURN(const int fd, files::OpenRegularFile(path, O_RDWR | O_CREAT));
      std::unique_ptr<PartialFile> file(new PartialFile(path, fd));
      ASSIGN_OR_RETURN(const files::LockResult locked, files::TryLock(fd, path));
      if (locked == files::LockResult::kUnsupported) WarnOfNoLocks(remote.path);
      if (locked != files::LockResult::kHeldByAnother) {
        // The process that held the lock may have renamed or removed the file, and this lock is on nothing of interest.
        struct stat opened, named;
        file->locked_ =
            fstat(file->fd_, &opened) == 0 && stat(path.c_str(), &named) == 0 && opened.st_ino == named.st_ino;
        if (file->locked_) return file;
        continue;
      }
      if (!std::exchange(said, true)) {
        LOG(INFO) << "waiting for another process that downloads " << remote.path;
      }
      if (Clock::now() > deadline) {
        return absl::UnavailableError(
            absl::StrCat("waited too long for another process that downloads ", remote.path, "; try again later"));
      }
      std::this_thread::sleep_for(kLockPoll);
    }
  }
  // Leaves what has come, for the next call to continue; nothing needs no file.
  ~PartialFile() {
    struct stat status;
    if (locked_ && !path_.empty() && fstat(fd_, &status) == 0 && status.st_size == 0) {
      files::RemoveFile(path_).IgnoreError();
    }
    close(fd_);
  }
  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;

  const std::string& path() const { return path_; }

  absl::StatusOr<int64_t> Size() const {
    struct stat status;
    if (fstat(fd_, &status) != 0) return files::ErrnoStatus(errno, "read", path_);
    return status.st_size;
  }
  absl::Status Truncate(int64_t size) {
    if (files::RetryInterrupted([&] { return ftruncate(fd_, size); }) == 0) return absl::OkStatus();
    return files::ErrnoStatus(errno, "write", path_);
  }
  absl::Status WriteAt(int64_t offset, absl::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t written = files::RetryInterrupted([&] { return pwrite(fd_, bytes.data(), bytes.size(), offset); });
      if (written < 0) return files::ErrnoStatus(errno, "write", path_);
      bytes.remove_prefix(written);
      offset += written;
    }
    return absl::OkStatus();
  }
  // Puts the contents, durably, where they belong.
  absl::Status Publish(const RemoteFile& remote) {
    if (remote.inflated_bytes > 0) {
      RETURN_IF_ERROR(Gunzip(path_, remote.path, remote.inflated_bytes));
      RETURN_IF_ERROR(files::RemoveFile(path_));
    } else {
      if (files::RetryInterrupted([&] { return fdatasync(fd_); }) != 0)
        return files::ErrnoStatus(errno, "write", path_);
      RETURN_IF_ERROR(files::Rename(path_, remote.path));
    }
    path_.clear();
    return files::SyncDirectory(files::DirectoryOf(remote.path));
  }

 private:
  PartialFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

  std::string path_;  // empty once published
  int fd_;
  bool locked_ = false;
};

// Of a directory and those above it the ones that are not there, itself first.
std::vector<std::string> MissingDirectories(const std::string& directory) {
  std::vector<std::string> missing;
  for (std::filesystem::path path = std::filesystem::path(directory).lexically_normal();
       !path.empty() && !files::Exists(path.string()); path = path.parent_path()) {
    if (path.has_filename()) missing.push_back(path.string());
  }
  return missing;
}

class Downloader {
 public:
  explicit Downloader(const DownloadOptions& options) : options_(options) {}

  // A directory that is made for the file, perhaps under a mistyped name, goes again if nothing comes to lie in it.
  absl::Status Download(const RemoteFile& remote) {
    const std::string directory = files::DirectoryOf(remote.path);
    const std::vector<std::string> missing = MissingDirectories(directory);
    const absl::Status status = DownloadInto(directory, remote);
    for (size_t i = 0; i < missing.size() && !status.ok(); ++i) {
      if (rmdir(missing[i].c_str()) != 0) break;
    }
    return status;
  }

 private:
  absl::Status DownloadInto(const std::string& directory, const RemoteFile& remote) {
    deadline_ = Clock::now() + options_.timeout;
    RETURN_IF_ERROR(files::MakeDirectories(directory));
    ASSIGN_OR_RETURN(const std::unique_ptr<PartialFile> file, PartialFile::Open(remote, deadline_));
    // Somebody else may have finished it while we waited. Only right files get this name.
    if (files::Exists(remote.path)) return absl::OkStatus();
    if (!options_.from_dir.empty()) {
      RETURN_IF_ERROR(TakeCopy(remote, *file));
      return file->Publish(remote);
    }
    std::vector<std::string> reasons;
    for (const std::string& url : remote.urls) {
      absl::StatusOr<std::string> reason = TryMirror(url, remote, *file);
      if (!reason.ok()) return reason.status();
      if (reason->empty()) return file->Publish(remote);
      // What is wrong with a host does not depend on the file, and is said once.
      const std::string host = HostOf(url);
      reasons.push_back(absl::StrCat(unreachable_.contains(host) ? host : url, ": ", *reason));
      if (std::count(reasons.begin(), reasons.end(), reasons.back()) > 1) reasons.pop_back();
    }
    return absl::UnavailableError(absl::StrCat("cannot download ", remote.path, ": ", absl::StrJoin(reasons, "; ")));
  }

  // Copies the file from from_dir.
  absl::Status TakeCopy(const RemoteFile& remote, PartialFile& file) {
    const std::string& url = remote.urls.at(0);
    const std::string path = files::JoinPath(options_.from_dir, url.substr(url.rfind('/') + 1));
    absl::StatusOr<std::unique_ptr<files::RandomAccessFile>> copy = files::RandomAccessFile::Open(path);
    if (absl::IsNotFound(copy.status())) {
      return absl::NotFoundError(absl::StrCat(copy.status().message(), ": it should be a copy of ", url));
    }
    RETURN_IF_ERROR(copy.status());
    const auto differs = [&](absl::string_view what, const auto& found, const auto& expected) {
      return absl::DataLossError(
          absl::StrCat(path, " is not what is published at ", url, ": it has ", what, found, ", expected ", expected));
    };
    if ((*copy)->size() != remote.num_bytes)
      return differs("this number of bytes: ", (*copy)->size(), remote.num_bytes);
    LOG(INFO) << "copying " << path << " to " << remote.path;
    RETURN_IF_ERROR(file.Truncate(0));
    std::vector<char> buffer(1 << 20);
    for (int64_t offset = 0;;) {
      ASSIGN_OR_RETURN(const int64_t got, (*copy)->ReadSome(offset, buffer.size(), buffer.data()));
      if (got == 0) break;
      RETURN_IF_ERROR(file.WriteAt(offset, absl::string_view(buffer.data(), got)));
      offset += got;
    }
    ASSIGN_OR_RETURN(const std::string sha256, Sha256OfFile(file.path()));
    if (sha256 == remote.sha256) return absl::OkStatus();
    RETURN_IF_ERROR(file.Truncate(0));  // so that no file is left
    return differs("the SHA-256 ", sha256, remote.sha256);
  }

  // Why this mirror does not give the file; empty if it did. An error if the file cannot be written.
  absl::StatusOr<std::string> TryMirror(const std::string& url, const RemoteFile& remote, PartialFile& file) {
    const std::string host = HostOf(url);
    if (const auto it = unreachable_.find(host); it != unreachable_.end()) return it->second;
    std::string reason;
    for (int attempt = 0; attempt < options_.attempts; ++attempt) {
      if (attempt > 0) std::this_thread::sleep_for(attempt * kRetryPause);
      ASSIGN_OR_RETURN(int64_t offset, file.Size());
      if (offset > remote.num_bytes) {
        offset = 0;
        RETURN_IF_ERROR(file.Truncate(0));
      }
      if (offset < remote.num_bytes) {
        const HttpResult result = Transfer(url, remote, offset, file);
        reason = std::string(result.status.message());
        if (result.outcome == HttpOutcome::kHandlerError && !absl::IsUnavailable(result.status)) return result.status;
        if (result.outcome == HttpOutcome::kUnreachable) return unreachable_[host] = reason;
        if (result.outcome == HttpOutcome::kBadRange) RETURN_IF_ERROR(file.Truncate(0));
        if (result.outcome == HttpOutcome::kBroken || result.outcome == HttpOutcome::kBadRange) continue;
        if (result.outcome != HttpOutcome::kDone) return reason;
      }
      ASSIGN_OR_RETURN(reason, Verify(remote, file));
      if (reason.empty()) return reason;
      // Bytes of an earlier call may be at fault; a whole transfer that is wrong will be wrong again.
      RETURN_IF_ERROR(file.Truncate(0));
      if (offset == 0) return reason;
    }
    return reason;
  }

  HttpResult Transfer(const std::string& url, const RemoteFile& remote, int64_t offset, PartialFile& file) {
    LOG(INFO) << "downloading " << url << " to " << remote.path << " (" << Megabytes(remote.num_bytes)
              << (offset > 0 ? absl::StrCat(", from ", Megabytes(offset), " on") : "") << ")";
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - Clock::now());
    const HttpRequest request = {.url = url,
                                 .offset = offset,
                                 .connect_timeout = options_.connect_timeout,
                                 .timeout = left,
                                 .min_bytes_per_second = options_.min_bytes_per_second,
                                 .low_speed_time = options_.low_speed_time};
    int64_t position = 0;
    logs::TaskProgress progress({.title = absl::StrCat("downloading ", remote.path.substr(remote.path.rfind('/') + 1)),
                                 .total = remote.num_bytes,
                                 .unit = "B",
                                 .done = offset});
    const auto on_response = [&](const HttpResponse& response) -> absl::Status {
      position = response.offset;
      // Pages that say "not found" or "log in" with status 200 are told by their size before they are stored.
      if (response.content_length >= 0 && position + response.content_length != remote.num_bytes) {
        return absl::UnavailableError(
            absl::StrFormat("offers %d bytes%s, expected %d", position + response.content_length,
                            response.content_type.empty() ? "" : " of " + response.content_type, remote.num_bytes));
      }
      return file.Truncate(position);
    };
    const auto on_body = [&](absl::string_view bytes) -> absl::Status {
      if (position + static_cast<int64_t>(bytes.size()) > remote.num_bytes) {
        return absl::UnavailableError(absl::StrFormat("sends more than the expected %d bytes", remote.num_bytes));
      }
      RETURN_IF_ERROR(file.WriteAt(position, bytes));
      position += bytes.size();
      progress.Set(position);
      return absl::OkStatus();
    };
    return HttpGet(request, {on_response, on_body});
  }

  // What is wrong with the bytes that have come; empty if nothing is.
  absl::StatusOr<std::string> Verify(const RemoteFile& remote, const PartialFile& file) {
    ASSIGN_OR_RETURN(const int64_t size, file.Size());
    if (size != remote.num_bytes) return absl::StrFormat("sent %d bytes, expected %d", size, remote.num_bytes);
    ASSIGN_OR_RETURN(const std::string sha256, Sha256OfFile(file.path()));
    if (sha256 == remote.sha256) return std::string();
    return absl::StrCat("sent a file with SHA-256 ", sha256, ", expected ", remote.sha256);
  }

  const DownloadOptions& options_;
  Clock::time_point deadline_;                      // of the file at hand
  std::map<std::string, std::string> unreachable_;  // host -> why
};

}  // namespace

absl::Status DownloadFiles(absl::Span<const RemoteFile> files, const DownloadOptions& options) {
  Downloader downloader(options);
  for (const RemoteFile& file : files) RETURN_IF_ERROR(downloader.Download(file));
  return absl::OkStatus();
}

absl::StatusOr<std::string> Sha256OfFile(const std::string& path) {
  ASSIGN_OR_RETURN(const std::unique_ptr<files::RandomAccessFile> file, files::RandomAccessFile::Open(path));
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> digest(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  std::vector<char> buffer(1 << 20);
  unsigned char bytes[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  logs::TaskProgress progress(
      {.title = absl::StrCat("verifying ", path.substr(path.rfind('/') + 1)), .total = file->size(), .unit = "B"});
  bool ok = digest != nullptr && EVP_DigestInit_ex(digest.get(), EVP_sha256(), nullptr) == 1;
  for (int64_t offset = 0; ok;) {
    ASSIGN_OR_RETURN(const int64_t read, file->ReadSome(offset, buffer.size(), buffer.data()));
    if (read == 0) break;
    ok = EVP_DigestUpdate(digest.get(), buffer.data(), read) == 1;
    offset += read;
    progress.Set(offset);
  }
  if (!ok || EVP_DigestFinal_ex(digest.get(), bytes, &size) != 1) {
    return absl::InternalError("OpenSSL cannot compute SHA-256");
  }
  return absl::BytesToHexString(absl::string_view(reinterpret_cast<const char*>(bytes), size));
}

}  // namespace official::data
