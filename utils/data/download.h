// Downloads files, which appear under their names only once they are complete and verified.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace official::data {

struct RemoteFile {
  std::string path;               // the file to make; missing directories are made
  std::vector<std::string> urls;  // mirrors (http, https), in the order in which they are tried
  int64_t num_bytes = 0;          // size of what is sent
  std::string sha256;             // SHA-256 of what is sent: 64 hexadecimal digits, lower case
  // 0: `path` is the file that is sent. Else that is a gzip file, which inflates to `path`, of this many bytes.
  int64_t inflated_bytes = 0;
};

struct DownloadOptions {
  std::chrono::milliseconds connect_timeout{5000};
  // A transfer that is slower than this for low_speed_time is given up.
  int64_t min_bytes_per_second = 1000;
  std::chrono::seconds low_speed_time{10};
  // The limit for one file, with all mirrors and retries, and for waiting for another process that downloads it.
  std::chrono::seconds timeout{600};
  // The number of attempts at each mirror when a transfer breaks off or the server is busy; each continues where the
  // last one stopped.
  int attempts = 3;
  // If not empty, a directory with copies of what the mirrors send, under the names that the first URL of each ends in.
  // Nothing is downloaded then.
  std::string from_dir = "";
};

// Downloads the files one after another and stops at the first that no mirror has. Says on stderr what it does. A
// transfer goes to a temporary name next to `path`; a broken one stays there and is resumed by the next call. Several
// processes may ask for the same file at once: one downloads, the others wait; a file system without locks cannot keep
// them apart, and a warning is logged. Directories made for a file of which
// nothing arrived are removed. Unavailable, naming file, mirrors and reasons, if the network or the servers fail or
// send something else; NotFound or DataLoss, naming the file and its URL, if from_dir lacks it or has something else;
// PermissionDenied, FailedPrecondition, ResourceExhausted or Aborted if the file cannot be written.
absl::Status DownloadFiles(absl::Span<const RemoteFile> files, const DownloadOptions& options = {});

// Returns the SHA-256 of a file as 64 hexadecimal digits.
absl::StatusOr<std::string> Sha256OfFile(const std::string& path);

}  // namespace official::data
