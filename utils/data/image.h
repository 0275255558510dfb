// Images in memory, and bilinear resizing as TensorFlow did it in 2018.
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

// A view of pixels: red, green and blue bytes, and a row every `stride` bytes.
struct RgbImage {
  ImageSize size;
  const uint8_t* pixels = nullptr;
  int64_t stride = 0;
};

struct ResizeOptions {
  ImageSize size;                      // the size of the whole image when scaled
  ImageWindow window;                  // the part of the scaled image to write
  bool mirror = false;                 // true: flips left and right before scaling, whose rounding is not symmetric
  std::array<float, 3> subtract = {};  // values to subtract from red, green and blue
};

// tf.image.resize_images(BILINEAR, align_corners=False) of TensorFlow 1: pixel i of n comes from position i * (size of
// the image / n), without half-pixel centres; the last pixel is repeated at the edge. Mirroring, crop and subtraction
// happen in the same pass. Sums are not in TensorFlow's order: results differ by about 1e-5 of the range.
class BilinearResizer {
 public:
  // Writes [window.height, window.width, 3]. `image` has at least one pixel.
  void Resize(const RgbImage& image, const ResizeOptions& options, float* out);

 private:
  // The source of a column of the output: its two neighbours in row_, and the weight of the second.
  struct Column {
    int32_t left, right;
    float weight;
  };
  // Scratch memory, kept between calls.
  std::vector<Column> columns_;
  std::vector<float> row_;  // a row of the image's width, interpolated between two of its rows
};

}  // namespace official::data
