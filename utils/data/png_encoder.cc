#include "utils/data/png_encoder.h"

#include <png.h>

#include "utils/compute/core/check.h"

namespace official::data {

std::string EncodePng(const compute::Tensor& image) {
  constexpr int kFormats[] = {PNG_FORMAT_GRAY, PNG_FORMAT_GA, PNG_FORMAT_RGB, PNG_FORMAT_RGBA};
  const compute::Shape& shape = image.shape();
  OFFICIAL_CHECK(shape.rank() == 3 && shape.num_elements() > 0 && shape.dim(2) <= 4) << image.type().ToString();
  png_image png = {};
  png.version = PNG_IMAGE_VERSION;
  png.height = static_cast<png_uint_32>(shape.dim(0));
  png.width = static_cast<png_uint_32>(shape.dim(1));
  png.format = kFormats[shape.dim(2) - 1];
  std::string bytes(PNG_IMAGE_PNG_SIZE_MAX(png), '\0');
  png_alloc_size_t size = bytes.size();
  const int written = png_image_write_to_memory(&png, bytes.data(), &size, /*convert_to_8bit=*/0, image.data<uint8_t>(),
                                                /*row_stride=*/0, /*colormap=*/nullptr);
  OFFICIAL_CHECK(written != 0) << png.message;
  bytes.resize(size);
  return bytes;
}

}  // namespace official::data
