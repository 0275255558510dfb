#include "official/resnet/imagenet/distorted_box.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

namespace official::resnet {
namespace {

using data::ImageSize;
using data::ImageWindow;

ImageWindow Sample(const ImageSize& size, const std::vector<BoundingBox>& boxes, int64_t index) {
  data::Random random(/*seed=*/1, /*epoch=*/0, index);
  return SampleDistortedBox(size, boxes, random);
}

TEST_CASE("Windows keep to the ranges of area and aspect, and spread over them") {
  constexpr ImageSize kSize = {375, 500};
  double smallest = 1, largest = 0, narrowest = 9, widest = 0;
  for (int i = 0; i < 5000; ++i) {
    const ImageWindow window = Sample(kSize, {}, i);
    REQUIRE((window.top >= 0 && window.left >= 0));
    REQUIRE((window.top + window.height <= kSize.height && window.left + window.width <= kSize.width));
    const double area = static_cast<double>(window.height * window.width) / (kSize.height * kSize.width);
    const double aspect = static_cast<double>(window.width) / window.height;
    // Without objects the image is one, of which a tenth must be seen. Sides are whole numbers.
    CHECK((area >= 0.1 && area <= 1 && aspect > 0.75 - 0.01 && aspect < 1.33 + 0.01));
    smallest = std::min(smallest, area);
    largest = std::max(largest, area);
    narrowest = std::min(narrowest, aspect);
    widest = std::max(widest, aspect);
  }
  CHECK(smallest < 0.11);
  CHECK(largest > 0.95);
  CHECK(narrowest < 0.76);
  CHECK(widest > 1.32);
}

TEST_CASE("A window covers a tenth of some object, or is the whole image") {
  constexpr ImageSize kSize = {400, 300};
  const std::vector<BoundingBox> boxes = {{0, 0, 0.1f, 0.1f}, {0.8f, 0.9f, 0.95f, 1}};
  const auto covered = [](const ImageWindow& window, double top, double left, double bottom, double right) {
    const double height = std::min<double>(bottom, window.top + window.height) - std::max<double>(top, window.top);
    const double width = std::min<double>(right, window.left + window.width) - std::max<double>(left, window.left);
    return std::max(height, 0.0) * std::max(width, 0.0) / ((bottom - top) * (right - left));
  };
  int by_first = 0, by_second = 0;
  for (int i = 0; i < 1000; ++i) {
    const ImageWindow window = Sample(kSize, boxes, i);
    const bool first = covered(window, 0, 0, 40, 30) >= 0.1;
    const bool second = covered(window, 320, 270, 380, 300) >= 0.1;
    CHECK((first || second));
    by_first += first;
    by_second += second;
  }
  CHECK(by_first > 100);
  CHECK(by_second > 100);
}

TEST_CASE("Boxes without pixels are no objects, and an image that allows no window is taken whole") {
  CHECK(Sample({400, 300}, {{0.5f, 0.5f, 0.5f, 0.5f}}, 0) == ImageWindow{0, 0, 400, 300});
  CHECK(Sample({1, 400}, {}, 0) == ImageWindow{0, 0, 1, 400});  // an area of 5 % has another aspect
  CHECK(Sample({1, 1}, {}, 0) == ImageWindow{0, 0, 1, 1});
}

TEST_CASE("A window never touches the far edges of a larger image") {
  for (int i = 0; i < 3000; ++i) {
    const ImageWindow window = Sample({20, 20}, {}, i);
    CHECK((window.height == 20 || window.top + window.height < 20));
    CHECK((window.width == 20 || window.left + window.width < 20));
  }
}

}  // namespace
}  // namespace official::resnet
