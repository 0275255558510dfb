// Fingerprint: a line of text by which a data set is recognized. Kept in checkpoints, it tells a later run that the
// data have changed.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace official::data {

class Fingerprint {
 public:
  // Adds the next file of the data set, by its name without directories.
  void AddFile(absl::string_view path);
  // Adds the next part of the contents. For more than 1 MiB it uses the size and blocks that are spread over the part,
  // so that a data set of any size costs a few milliseconds at most: it notices other data, not every change of a few
  // bytes.
  void AddContent(const void* bytes, int64_t num_bytes);

  // Returns the digest, such as "1a2b3c4d".
  std::string Digest() const;
  // Returns "60000 examples, digest 1a2b3c4d", with the names of the first and the last file if any were added.
  std::string ToString(int64_t num_examples) const;

 private:
  uint32_t digest_ = 0;
  int64_t num_files_ = 0;
  std::string first_file_, last_file_;
};

}  // namespace official::data
