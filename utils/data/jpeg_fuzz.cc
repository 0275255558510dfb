// The input is a JPEG image, decoded whole and in part, at its size and at half of it.
#include <vector>

#include "utils/compute/core/check.h"
#include "utils/data/jpeg.h"
#include "utils/fuzzing/memory_file.h"

namespace {

// Decoding is linear in the pixels, and what they cost must stay below the fuzzer's limits of time and memory.
constexpr int64_t kMaxPixels = 1 << 16;

void CheckOnlyDataLoss(const absl::Status& status) {
  OFFICIAL_CHECK(status.ok() || absl::IsDataLoss(status)) << status;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using official::data::JpegReader;
  const absl::string_view bytes = official::fuzzing::AsBytes(data, size);
  std::vector<uint8_t> buffer;
  for (const int denominator : {1, 2}) {
    JpegReader whole(bytes), part(bytes);
    const auto image = whole.ReadSize();
    CheckOnlyDataLoss(image.status());
    if (!image.ok() || image->height * image->width > kMaxPixels || !part.ReadSize().ok()) return 0;
    whole.SetScale(denominator);
    CheckOnlyDataLoss(whole.Decode(&buffer).status());
    const auto scaled = part.SetScale(denominator);
    CheckOnlyDataLoss(
        part.DecodeWindow({scaled.height / 3, scaled.width / 3, (scaled.height + 2) / 3, (scaled.width + 2) / 3},
                          &buffer)
            .status());
  }
  return 0;
}
