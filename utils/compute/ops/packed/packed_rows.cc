#include "utils/compute/ops/packed/packed_rows.h"

#include "absl/strings/str_cat.h"

namespace official::compute {

absl::Status CheckOffsets(absl::string_view what, const int32_t* offsets, int64_t batch, int64_t rows) {
  if (offsets[0] != 0) {
    return absl::InvalidArgumentError(absl::StrCat(what, " offset 0 is ", offsets[0], ", not 0"));
  }
  for (int64_t b = 0; b < batch; ++b) {
    if (offsets[b] <= offsets[b + 1] && offsets[b + 1] <= rows) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(what, " offset ", b + 1, " is ", offsets[b + 1], ", outside [", offsets[b], ", ", rows, "]"));
  }
  return absl::OkStatus();
}

}  // namespace official::compute
