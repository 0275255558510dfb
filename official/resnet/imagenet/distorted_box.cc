#include "official/resnet/imagenet/distorted_box.h"

#include <algorithm>
#include <cmath>
#include <optional>

namespace official::resnet {
namespace {

using data::ImageSize;
using data::ImageWindow;

constexpr int kMaxAttempts = 100;
constexpr float kMinObjectCovered = 0.1f;
constexpr float kMinAspect = 0.75f, kMaxAspect = 1.33f;
constexpr float kMinArea = 0.05f, kMaxArea = 1.0f;

struct Rectangle {
  int64_t top, left, bottom, right;
  float Area() const { return static_cast<float>((right - left) * (bottom - top)); }
};

Rectangle Intersection(const Rectangle& a, const Rectangle& b) {
  const Rectangle both = {std::max(a.top, b.top), std::max(a.left, b.left), std::min(a.bottom, b.bottom),
                          std::min(a.right, b.right)};
  return both.left > both.right || both.top > both.bottom ? Rectangle{0, 0, 0, 0} : both;
}

// To the nearest whole number, ties to even.
int64_t Round(float x) { return std::lrint(x); }

int64_t WidthOf(int64_t height, float aspect) { return Round(static_cast<float>(height) * aspect); }

// The largest height whose width, at this aspect, still is within the image.
int64_t MaxHeight(const ImageSize& image, float max_area, float aspect) {
  int64_t height = Round(std::sqrt(max_area / aspect));
  if (WidthOf(height, aspect) > image.width) {
    constexpr float kEpsilon = 1e-7f;
    height = static_cast<int64_t>((static_cast<double>(image.width) + 0.5 - kEpsilon) / aspect);
    if (WidthOf(height, aspect) > image.width) --height;
  }
  return std::min(height, image.height);
}

// Where something of `size` begins in `room`. The last place is never drawn, as in TensorFlow.
int64_t Offset(int64_t room, int64_t size, data::Random& random) {
  return size < room ? random.UniformInt(room - size) : 0;
}

// A window of the given aspect; nothing if what was drawn does not fit.
std::optional<ImageWindow> SampleWindow(const ImageSize& image, float aspect, data::Random& random) {
  const float image_width = static_cast<float>(image.width), image_height = static_cast<float>(image.height);
  const float min_area = kMinArea * image_width * image_height, max_area = kMaxArea * image_width * image_height;

  const int64_t max_height = MaxHeight(image, max_area, aspect);
  int64_t height = std::min(Round(std::sqrt(min_area / aspect)), max_height);
  if (height < max_height) height += random.UniformInt(max_height - height + 1);
  int64_t width = WidthOf(height, aspect);
  // Rounding may leave the range of areas by little.
  if (static_cast<float>(width * height) < min_area) width = WidthOf(++height, aspect);
  if (static_cast<float>(width * height) > max_area) width = WidthOf(--height, aspect);
  const float area = static_cast<float>(width * height);
  if (area < min_area || area > max_area || width > image.width || height > image.height || width <= 0 || height <= 0) {
    return std::nullopt;
  }
  const int64_t top = Offset(image.height, height, random);
  return ImageWindow{top, Offset(image.width, width, random), height, width};
}

bool CoversAnObject(const Rectangle& window, absl::Span<const Rectangle> objects) {
  return std::any_of(objects.begin(), objects.end(), [&](const Rectangle& object) {
    // What has no pixels is no object.
    return object.Area() >= 1 && Intersection(window, object).Area() / object.Area() >= kMinObjectCovered;
  });
}

}  // namespace

ImageWindow SampleDistortedBox(const ImageSize& image, absl::Span<const BoundingBox> boxes, data::Random& random) {
  std::vector<Rectangle> objects;
  for (const BoundingBox& box : boxes) {
    const auto pixels = [](float share, int64_t size) {
      return static_cast<int64_t>(share * static_cast<float>(size));
    };
    objects.push_back({pixels(box.ymin, image.height), pixels(box.xmin, image.width), pixels(box.ymax, image.height),
                       pixels(box.xmax, image.width)});
  }
  if (objects.empty()) objects.push_back({0, 0, image.height, image.width});

  for (int attempt = 0; attempt < kMaxAttempts; ++attempt) {
    const auto window = SampleWindow(image, random.Uniform(kMinAspect, kMaxAspect), random);
    if (!window.has_value()) continue;
    const Rectangle rectangle = {window->top, window->left, window->top + window->height, window->left + window->width};
    if (CoversAnObject(rectangle, objects)) return *window;
  }
  return {0, 0, image.height, image.width};
}

}  // namespace official::resnet
