// Windows that slide over images: the geometry that convolution and pooling share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "utils/compute/core/shape.h"
#include "utils/compute/graph/attrs.h"

namespace official::compute {

struct Size2D {
  int64_t height = 1, width = 1;
  friend bool operator==(const Size2D& a, const Size2D& b) = default;
};

enum class Padding {
  // Output size is ceil(input / stride), as in TensorFlow: an odd total puts the extra row or column after the image.
  kSame,
  // No padding: only windows that lie inside the image.
  kValid,
  // The padding is WindowParams::border.
  kExplicit,
};

// Rows and columns of padding around an image.
struct Border {
  int64_t top = 0, bottom = 0, left = 0, right = 0;
};

struct WindowParams {
  Size2D stride = {1, 1};
  Size2D dilation = {1, 1};
  Padding padding = Padding::kSame;
  Border border = {};  // for kExplicit
};

// One axis of resolved windows. Window `o` in [0, output) reads input positions
// o * stride - before + k * dilation for k in [0, window), of which those outside [0, input) are padding.
struct WindowAxis {
  int64_t input = 0, window = 0, stride = 1, dilation = 1, output = 0;
  int64_t before = 0, after = 0;  // padding

  constexpr int64_t Position(int64_t o, int64_t k) const { return o * stride - before + k * dilation; }
  // The range [first, last) of k whose position lies inside the image.
  constexpr int64_t FirstInside(int64_t o) const {
    const int64_t start = Position(o, 0);
    return start >= 0 ? 0 : std::min((-start + dilation - 1) / dilation, window);
  }
  constexpr int64_t LastInside(int64_t o) const {
    const int64_t room = input - Position(o, 0);  // positions from the window's start to the image's end
    return room <= 0 ? 0 : std::min((room + dilation - 1) / dilation, window);
  }
};
struct Window2D {
  WindowAxis height, width;
};

// The parameters as attributes of a node: "strides", "dilations", "padding" ("SAME", "VALID", "EXPLICIT") and
// "explicit_paddings" {top, bottom, left, right}.
Attrs WindowAttrs(const WindowParams& params);

// Resolves windows of a size that slide over images [N, H, W, C] as the attributes say. Returns InvalidArgument if a
// stride, dilation or size is below 1, the padding is negative, or no window fits.
absl::StatusOr<Window2D> ResolveWindow(const Attrs& attrs, const Shape& images, Size2D window);

}  // namespace official::compute
