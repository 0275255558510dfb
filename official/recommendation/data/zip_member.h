// One file in a zip archive.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace official::recommendation {

class ZipMember {
 public:
  // Opens the only member of an archive that has one of these names, in whatever folder of it. DataLoss if the archive
  // is damaged, has names that lead out of it ("../"), none or several such members, or one of more than 4 GiB; other
  // errors as in utils/files.
  static absl::StatusOr<ZipMember> Open(const std::string& archive, const std::vector<std::string>& names);
  ZipMember(ZipMember&&);
  ~ZipMember();

  // The name for messages: that of the archive, a slash, and that of the member.
  const std::string& name() const { return name_; }
  // Gives up to `size` more bytes, 0 at the end. DataLoss if the member is damaged, at the latest at its end.
  absl::StatusOr<int64_t> Read(char* buffer, int64_t size);
  // Writes all that Read() has not given yet to a file, which appears under its name only when it is complete.
  absl::Status Extract(const std::string& to);

 private:
  struct Handles;
  ZipMember(std::string name, std::unique_ptr<Handles> handles);

  std::string name_;
  std::unique_ptr<Handles> handles_;
};

}  // namespace official::recommendation
