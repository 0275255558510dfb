// Images in memory: where their pixels lie, and bilinear resizing as TensorFlow did it in 2018.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace official::data {

struct ImageSize {
  int64_t height = 0, width = 0;
  friend bool operator==(const ImageSize&, const ImageSize&) = default;
};

// A part of an image, in pixels.
struct ImageWindow {
  int64_t top = 0, left = 0, height = 0, width = 0;
  friend bool operator==(const ImageWindow&, const ImageWindow&) = default;
};

// Pixels that somebody else keeps: red, green and blue bytes, and a row every `stride` bytes.
struct RgbImage {
  ImageSize size;
  const uint8_t* pixels = nullptr;
  int64_t stride = 0;
};

struct ResizeOptions {
  ImageSize size;                      // that the whole image is scaled to
  ImageWindow window;                  // the part of the scaled image that is wanted
  bool mirror = false;                 // left and right, before it is scaled: what scaling rounds is not symmetric
  std::array<float, 3> subtract = {};  // from red, green and blue
};

// tf.image.resize_images(BILINEAR, align_corners=False) of TensorFlow 1: pixel i of n comes from the place i * (size of
// the image / n), without half-pixel centres; beyond the last pixel that one is repeated. Mirroring, the crop and the
// subtraction happen in the same pass. Sums are not made in TensorFlow's order: results differ by about 1e-5 of the
// range.
class BilinearResizer {
 public:
  // Writes [window.height, window.width, 3]. `image` has at least one pixel.
  void Resize(const RgbImage& image, const ResizeOptions& options, float* out);

 private:
  // Where a column of the output comes from: its two neighbours in row_, and the weight of the second.
  struct Column {
    int32_t left, right;
    float weight;
  };
  // Kept between calls, so that they need no memory.
  std::vector<Column> columns_;
  std::vector<float> row_;  // a row of the image's width, between two of its rows
};

}  // namespace official::data
