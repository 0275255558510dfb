// Preprocessing: turns the bytes of an image file into the pixels that the model takes.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "official/resnet/imagenet/distorted_box.h"
#include "utils/data/image.h"
#include "utils/data/random.h"

namespace official::resnet {

inline constexpr int64_t kImagenetImageSize = 224;

// Memory that is reused for the next image.
struct PreprocessingScratch {
  std::vector<uint8_t> pixels;
  data::BilinearResizer resizer;
};

// Decodes all of an image; its pixels lie in `buffer`. `encoded` and errors as below.
absl::StatusOr<data::RgbImage> DecodeImage(absl::string_view encoded, std::vector<uint8_t>* buffer);

// Both functions write 224 x 224 pixels as ImagenetSpec() says. `encoded` is JPEG or PNG, told by its first bytes;
// DataLoss if it is neither or cannot be decoded, ResourceExhausted if there is no memory for it.

// Writes a window from SampleDistortedBox, mirrored every other time and scaled to 224 x 224. With `fast_jpeg` it is
// decoded at half, a quarter or an eighth of its size where that leaves at least 224 pixels each way.
absl::Status PreprocessForTraining(absl::string_view encoded, absl::Span<const BoundingBox> boxes, bool fast_jpeg,
                                   data::Random& random, PreprocessingScratch& scratch, float* out);

// Writes the middle of the image, scaled to 256 pixels on its short side. (For some sizes float arithmetic makes that
// 255.)
absl::Status PreprocessForEvaluation(absl::string_view encoded, PreprocessingScratch& scratch, float* out);

// Decodes all of an image, as evaluation does, to find damage; returns its size.
absl::StatusOr<data::ImageSize> CheckImage(absl::string_view encoded, PreprocessingScratch& scratch);

}  // namespace official::resnet
