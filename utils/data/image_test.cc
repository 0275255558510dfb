#include "utils/data/image.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>

namespace official::data {
namespace {

// A grey image, whose three channels are equal.
std::vector<uint8_t> Grey(const std::vector<int>& values) {
  std::vector<uint8_t> pixels;
  for (const int value : values) pixels.insert(pixels.end(), 3, static_cast<uint8_t>(value));
  return pixels;
}

std::vector<float> Resize(const std::vector<uint8_t>& pixels, const ImageSize& size, const ResizeOptions& options) {
  std::vector<float> out(options.window.height * options.window.width * 3);
  BilinearResizer().Resize({size, pixels.data(), 3 * size.width}, options, out.data());
  return out;
}

// The first channel of a grey image that is resized wholly.
std::vector<float> ResizeGrey(const std::vector<int>& values, const ImageSize& size, const ImageSize& to,
                              bool mirror = false) {
  const std::vector<float> out =
      Resize(Grey(values), size, {.size = to, .window = {0, 0, to.height, to.width}, .mirror = mirror});
  std::vector<float> first;
  for (size_t i = 0; i < out.size(); i += 3) first.push_back(out[i]);
  return first;
}

void CheckNear(const std::vector<float>& actual, const std::vector<float>& expected) {
  REQUIRE(actual.size() == expected.size());
  for (size_t i = 0; i < actual.size(); ++i) CHECK(actual[i] == Approx(expected[i]).margin(1e-4));
}

// Both from TensorFlow 1.10.
TEST_CASE("Resizing has no half-pixel centres and repeats the last pixel") {
  const std::vector<float> row = {0, .75, 1.5, 2}, middle = {1.5, 2.25, 3, 3.5}, last = {3, 3.75, 4.5, 5};
  std::vector<float> expected;
  for (const auto* part : {&row, &middle, &last, &last}) expected.insert(expected.end(), part->begin(), part->end());
  CheckNear(ResizeGrey({0, 1, 2, 3, 4, 5}, {2, 3}, {4, 4}), expected);

  std::vector<int> count(25);
  std::iota(count.begin(), count.end(), 0);
  CheckNear(ResizeGrey(count, {5, 5}, {2, 3}), {0, 1.6666666f, 3.3333333f, 12.5f, 14.166666f, 15.833334f});
}

TEST_CASE("Mirroring comes before scaling") {
  CheckNear(ResizeGrey({10, 20, 40}, {1, 3}, {1, 2}), {10, 30});
  CheckNear(ResizeGrey({10, 20, 40}, {1, 3}, {1, 2}, /*mirror=*/true), {40, 15});
}

TEST_CASE("A size of one pixel, in or out, works") {
  CheckNear(ResizeGrey({7}, {1, 1}, {2, 3}), std::vector<float>(6, 7.0f));
  CheckNear(ResizeGrey({7, 8, 9, 10}, {2, 2}, {1, 1}), {7});
}

TEST_CASE("A window is that part of the whole, each channel less its mean") {
  constexpr int kHeight = 37, kWidth = 53;
  std::vector<uint8_t> pixels(kHeight * kWidth * 3);
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<uint8_t>(i * i % 251);
  const ImageSize size = {kHeight, kWidth}, scaled = {90, 31};
  const bool mirror = GENERATE(false, true);
  const std::vector<float> whole = Resize(pixels, size, {.size = scaled, .window = {0, 0, 90, 31}, .mirror = mirror});
  const ImageWindow window = GENERATE(ImageWindow{0, 0, 1, 1}, ImageWindow{10, 5, 20, 17}, ImageWindow{89, 30, 1, 1});
  const std::vector<float> part =
      Resize(pixels, size, {.size = scaled, .window = window, .mirror = mirror, .subtract = {1, 20, 300}});
  for (int64_t y = 0; y < window.height; ++y) {
    for (int64_t x = 0; x < window.width; ++x) {
      for (int c = 0; c < 3; ++c) {
        const float expected = whole[((y + window.top) * 31 + x + window.left) * 3 + c];
        CHECK(part[(y * window.width + x) * 3 + c] ==
              Approx(expected - std::array{1.0f, 20.0f, 300.0f}[c]).margin(1e-4));
      }
    }
  }
}

TEST_CASE("Rows may lie apart") {
  std::vector<uint8_t> padded(2 * 10, 99);
  for (int i = 0; i < 6; ++i) padded[i] = padded[10 + i] = static_cast<uint8_t>(i);
  std::vector<float> out(2 * 2 * 3);
  BilinearResizer().Resize({{2, 2}, padded.data(), 10}, {.size = {2, 2}, .window = {0, 0, 2, 2}}, out.data());
  CheckNear(out, {0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5});
}

}  // namespace
}  // namespace official::data
