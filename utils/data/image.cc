#include "utils/data/image.h"

#include <immintrin.h>

#include <algorithm>
#include <cmath>

#include "utils/compute/core/check.h"
#include "utils/compute/cpu/simd.h"

namespace official::data {
namespace {

constexpr int64_t kChannels = 3;

// Two neighbours among `size` pixels and the weight of the second.
struct Neighbours {
  int64_t lower, upper;
  float weight;
};

// Of pixel `i` of `out_size`. The arithmetic is float, as TensorFlow's: where i * scale is nearly a whole number, more
// exact arithmetic would choose other neighbours.
Neighbours FindNeighbours(int64_t i, int64_t size, int64_t out_size) {
  const float scale = static_cast<float>(size) / static_cast<float>(out_size);
  const float place = static_cast<float>(i) * scale;
  const int64_t lower = std::min(static_cast<int64_t>(place), size - 1);
  return {lower, std::min(lower + 1, size - 1), place - static_cast<float>(lower)};
}

// out[i] = the value between top[i] and bottom[i].
void MixRows(const uint8_t* top, const uint8_t* bottom, float weight, int64_t n, float* out) {
  compute::WithSimd([=] {
    for (int64_t i = 0; i < n; ++i) {
      const float from = static_cast<float>(static_cast<int32_t>(top[i]));
      out[i] = from + static_cast<float>(static_cast<int32_t>(bottom[i]) - static_cast<int32_t>(top[i])) * weight;
    }
  });
}

}  // namespace

void BilinearResizer::Resize(const RgbImage& image, const ResizeOptions& options, float* out) {
  const ImageWindow& window = options.window;
  OFFICIAL_CHECK(image.size.height > 0 && image.size.width > 0) << "an image without pixels";
  OFFICIAL_CHECK(window.top >= 0 && window.top + window.height <= options.size.height && window.left >= 0 &&
                 window.left + window.width <= options.size.width)
      << "a window outside of the image";

  columns_.resize(window.width);
  int64_t first = image.size.width, last = 0;  // of the columns that are needed
  const auto column_of = [&](int64_t x) { return options.mirror ? image.size.width - 1 - x : x; };
  for (int64_t x = 0; x < window.width; ++x) {
    const Neighbours near = FindNeighbours(window.left + x, image.size.width, options.size.width);
    const int64_t left = column_of(near.lower), right = column_of(near.upper);
    first = std::min({first, left, right});
    last = std::max({last, left, right});
    columns_[x] = {static_cast<int32_t>(left * kChannels), static_cast<int32_t>(right * kChannels), near.weight};
  }
  for (Column& column : columns_) {
    column.left -= first * kChannels;
    column.right -= first * kChannels;
  }
  const int64_t row_size = (last + 1 - first) * kChannels;
  row_.resize(row_size + 1);  // a pixel is read as four floats

  // The fourth lane carries the next pixel's red, which is written over.
  const __m128 subtract = _mm_setr_ps(options.subtract[0], options.subtract[1], options.subtract[2], 0);
  const auto pixel = [&](const Column& column) {
    const __m128 left = _mm_loadu_ps(&row_[column.left]), right = _mm_loadu_ps(&row_[column.right]);
    const __m128 mixed = _mm_fmadd_ps(_mm_sub_ps(right, left), _mm_set1_ps(column.weight), left);
    return _mm_sub_ps(mixed, subtract);
  };
  for (int64_t y = 0; y < window.height; ++y) {
    const Neighbours near = FindNeighbours(window.top + y, image.size.height, options.size.height);
    const uint8_t* columns = image.pixels + first * kChannels;
    MixRows(columns + near.lower * image.stride, columns + near.upper * image.stride, near.weight, row_size,
            row_.data());
    for (int64_t x = 0; x + 1 < window.width; ++x, out += kChannels) _mm_storeu_ps(out, pixel(columns_[x]));
    if (window.width == 0) continue;
    alignas(16) float last_pixel[4];
    _mm_store_ps(last_pixel, pixel(columns_.back()));
    out = std::copy_n(last_pixel, kChannels, out);
  }
}

}  // namespace official::data
