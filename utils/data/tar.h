// The members of a tar archive that is compressed with gzip, one after another. This is not libarchive, which would
// load a dozen more libraries (libxml2, Nettle, Zstandard, ...) at every start of a program.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "utils/data/gzip.h"

namespace official::data {

struct TarMember {
  std::string name;  // its path in the archive; empty after the last member
  int64_t num_bytes = 0;
  bool is_file = false;  // false for a directory, a link, ...
};

class TarReader {
 public:
  // Opens an archive. The file is mapped, not read: archives may be larger than memory. Errors as in utils/files;
  // DataLoss if it is not a gzip file of at most kMaxGzipBytes.
  static absl::StatusOr<std::unique_ptr<TarReader>> Open(const std::string& path);
  ~TarReader();

  // Returns the next member; skips the unread part of the last one. DataLoss if the archive is damaged or truncated.
  absl::StatusOr<TarMember> Next();
  // Writes the content of the member that Next() returned to a file, which appears under its name only when it is
  // complete.
  absl::Status Extract(const std::string& to);

 private:
  TarReader(std::string path, absl::string_view mapped)
      : path_(std::move(path)), mapped_(mapped), gzip_(mapped, path_) {}
  // Writes the member's content to the file `to`, or skips it if `to` is empty.
  absl::Status ReadContent(const std::string& to);
  absl::Status Damaged(absl::string_view what) const;

  std::string path_;
  absl::string_view mapped_;
  GzipReader gzip_;
  TarMember member_;
  bool has_content_ = false;  // true while member_ has unread content
};

}  // namespace official::data
