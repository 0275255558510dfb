#include "official/resnet/imagenet/preprocessing.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/compute/core/tensor.h"
#include "utils/data/file_kind.h"
#include "utils/data/jpeg.h"
#include "utils/data/png.h"

namespace official::resnet {
namespace {

using data::ImageSize;
using data::ImageWindow;
using data::RgbImage;

constexpr int64_t kSize = kImagenetImageSize;
constexpr int64_t kShortSide = 256;  // of an image in evaluation, before its middle is taken
constexpr std::array<float, 3> kMeans = {123.68f, 116.78f, 103.94f};
constexpr int64_t kChannels = 3;

ImageWindow Middle(const ImageSize& size) {
  return {(size.height - kSize) / 2, (size.width - kSize) / 2, kSize, kSize};
}

RgbImage Crop(const RgbImage& image, const ImageWindow& window) {
  return {
      {window.height, window.width}, image.pixels + window.top * image.stride + window.left * kChannels, image.stride};
}

// The size with a short side of 256; source: resnet's imagenet_preprocessing.py, which computes in float and truncates.
ImageSize ScaledSize(const ImageSize& size) {
  const float scale = static_cast<float>(kShortSide) / static_cast<float>(std::min(size.height, size.width));
  const auto scaled = [scale](int64_t side) { return static_cast<int64_t>(static_cast<float>(side) * scale); };
  return {scaled(size.height), scaled(size.width)};
}

// Grey becomes RGB and transparency is left out.
absl::StatusOr<RgbImage> DecodePng(absl::string_view encoded, std::vector<uint8_t>* buffer) {
  ASSIGN_OR_RETURN(const compute::Tensor image, data::DecodePng(encoded, "the PNG image"));
  const ImageSize size = {image.shape().dim(0), image.shape().dim(1)};
  const int64_t channels = image.shape().dim(2);
  const int64_t to_green = channels >= kChannels ? 1 : 0;
  const uint8_t* from = image.data<uint8_t>();
  buffer->resize(size.height * size.width * kChannels);
  for (uint8_t* to = buffer->data(); to != buffer->data() + buffer->size(); to += kChannels, from += channels) {
    to[0] = from[0];
    to[1] = from[to_green];
    to[2] = from[2 * to_green];
  }
  return RgbImage{size, buffer->data(), size.width * kChannels};
}

// The largest fraction of the size at which the window still has the pixels that are wanted.
int Denominator(const ImageWindow& window) {
  for (const int denominator : {8, 4, 2}) {
    if (std::min(window.height, window.width) / denominator >= kSize) return denominator;
  }
  return 1;
}

// The window in an image that has shrunk to `size`.
ImageWindow Shrink(const ImageWindow& window, int denominator, const ImageSize& size) {
  const int64_t top = window.top / denominator, left = window.left / denominator;
  return {top, left, std::min(window.height / denominator, size.height - top),
          std::min(window.width / denominator, size.width - left)};
}

absl::StatusOr<RgbImage> DecodeDistorted(absl::string_view encoded, absl::Span<const BoundingBox> boxes, bool fast_jpeg,
                                         data::Random& random, std::vector<uint8_t>* buffer) {
  if (!data::IsJpeg(encoded)) {
    ASSIGN_OR_RETURN(const RgbImage image, DecodeImage(encoded, buffer));
    return Crop(image, SampleDistortedBox(image.size, boxes, random));
  }
  data::JpegReader jpeg(encoded);
  ASSIGN_OR_RETURN(const ImageSize size, jpeg.ReadSize());
  const ImageWindow window = SampleDistortedBox(size, boxes, random);
  const int denominator = fast_jpeg ? Denominator(window) : 1;
  if (denominator == 1) return jpeg.DecodeWindow(window, buffer);
  const ImageSize shrunk = jpeg.SetScale(denominator);
  return jpeg.DecodeWindow(Shrink(window, denominator, shrunk), buffer);
}

}  // namespace

absl::StatusOr<RgbImage> DecodeImage(absl::string_view encoded, std::vector<uint8_t>* buffer) {
  if (data::IsPng(encoded)) return DecodePng(encoded, buffer);
  if (!data::IsJpeg(encoded)) {
    return absl::DataLossError(encoded.empty()
                                   ? "the image is empty"
                                   : absl::StrCat("the image is neither JPEG nor PNG", data::FileKindNote(encoded)));
  }
  data::JpegReader jpeg(encoded);
  RETURN_IF_ERROR(jpeg.ReadSize().status());
  return jpeg.Decode(buffer);
}

absl::Status PreprocessForTraining(absl::string_view encoded, absl::Span<const BoundingBox> boxes, bool fast_jpeg,
                                   data::Random& random, PreprocessingScratch& scratch, float* out) {
  ASSIGN_OR_RETURN(const RgbImage image, DecodeDistorted(encoded, boxes, fast_jpeg, random, &scratch.pixels));
  const bool mirror = random.Bits() % 2 == 1;
  scratch.resizer.Resize(
      image, {.size = {kSize, kSize}, .window = {0, 0, kSize, kSize}, .mirror = mirror, .subtract = kMeans}, out);
  return absl::OkStatus();
}

absl::Status PreprocessForEvaluation(absl::string_view encoded, PreprocessingScratch& scratch, float* out) {
  ASSIGN_OR_RETURN(const RgbImage image, DecodeImage(encoded, &scratch.pixels));
  const ImageSize size = ScaledSize(image.size);
  scratch.resizer.Resize(image, {.size = size, .window = Middle(size), .subtract = kMeans}, out);
  return absl::OkStatus();
}

absl::StatusOr<ImageSize> CheckImage(absl::string_view encoded, PreprocessingScratch& scratch) {
  ASSIGN_OR_RETURN(const RgbImage image, DecodeImage(encoded, &scratch.pixels));
  return image.size;
}

}  // namespace official::resnet
