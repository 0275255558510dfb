// Gzip data in memory, inflated step by step.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

struct inflate_state;

namespace official::data {

// The largest gzip file that is read (ISA-L counts input in 32 bits).
inline constexpr int64_t kMaxGzipBytes = std::numeric_limits<uint32_t>::max();

// True if a file that begins with `bytes` is a gzip file.
bool IsGzip(absl::string_view bytes);

class GzipReader {
 public:
  // Reads `compressed`, at most kMaxGzipBytes, which must stay alive; `name` is for error messages.
  GzipReader(absl::string_view compressed, std::string name);
  ~GzipReader();

  // Writes the next bytes to `out`: exactly `size`, or fewer at the end of the data, whose checksum is then verified.
  // Returns their number. Zeros behind the compressed data are ignored, as gzip does. DataLoss if the data is corrupt
  // or ends early, with the number of bytes before that.
  absl::StatusOr<int64_t> Read(int64_t size, void* out);
  // The number of bytes written so far.
  int64_t position() const { return position_; }

 private:
  std::string name_;
  std::unique_ptr<inflate_state> state_;
  int64_t position_ = 0;
};

// Inflates the file `from` into the file `to`, which appears under its name only when complete. DataLoss if `to` would
// have more than `max_bytes`.
absl::Status Gunzip(const std::string& from, const std::string& to, int64_t max_bytes);

}  // namespace official::data
