#include "official/mnist/drawn_digits.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

namespace official::mnist {
namespace {

constexpr int64_t kPixels = 28 * 28;

std::vector<uint8_t> Image(const DrawnDigits& digits, int64_t i) {
  const uint8_t* begin = digits.images.data<uint8_t>() + i * kPixels;
  return {begin, begin + kPixels};
}

TEST_CASE("Digits do not depend on the number of threads or on where drawing begins") {
  const DrawnDigits digits = DrawDigits(/*seed=*/1, /*first=*/0, /*count=*/1000, /*num_threads=*/1);
  for (int num_threads : {1, 2, 8}) {
    const DrawnDigits part = DrawDigits(1, 300, 600, num_threads);
    bool same = true;
    for (int64_t i = 0; i < 600; ++i) {
      same &= Image(part, i) == Image(digits, 300 + i);
      same &= part.labels.data<int32_t>()[i] == digits.labels.data<int32_t>()[300 + i];
    }
    CHECK(same);
  }
}

TEST_CASE("Digits differ by seed and by number") {
  const DrawnDigits a = DrawDigits(1, 0, 20, 1), b = DrawDigits(2, 0, 20, 1);
  CHECK(Image(a, 3) != Image(b, 3));
  CHECK(Image(a, 3) != Image(a, 13));
}

TEST_CASE("Every class is equally frequent") {
  const DrawnDigits digits = DrawDigits(1, 60000, 100, 1);
  std::vector<int> counts(10);
  for (int32_t label : digits.labels.flat<int32_t>()) ++counts[label];
  CHECK(counts == std::vector<int>(10, 10));
}

TEST_CASE("Digits lie in the middle, bright on a dark ground, with about as much ink as MNIST's") {
  const DrawnDigits digits = DrawDigits(1, 0, 500, 2);
  double sum = 0, border = 0;
  for (int64_t i = 0; i < 500; ++i) {
    const std::vector<uint8_t> image = Image(digits, i);
    CHECK(*std::max_element(image.begin(), image.end()) > 150);
    for (int64_t p = 0; p < kPixels; ++p) {
      sum += image[p];
      const int64_t row = p / 28, column = p % 28;
      if (row == 0 || row == 27 || column == 0 || column == 27) border += image[p];
    }
  }
  const double mean = sum / (500 * kPixels);
  CHECK(mean > 20);  // 33.3 in MNIST
  CHECK(mean < 60);
  CHECK(border / (500 * 108) < 15);
}

// A class that could not be told from another would show here: the nearest of the class means, the simplest classifier,
// finds 82 % of MNIST's test digits.
TEST_CASE("Digits of a class resemble each other more than those of others") {
  constexpr int64_t kTrain = 5000, kTest = 1000;
  const DrawnDigits digits = DrawDigits(1, 0, kTrain + kTest, 2);
  std::vector<std::vector<double>> means(10, std::vector<double>(kPixels));
  for (int64_t i = 0; i < kTrain; ++i) {
    const uint8_t* image = digits.images.data<uint8_t>() + i * kPixels;
    for (int64_t p = 0; p < kPixels; ++p) means[i % 10][p] += image[p] * 10.0 / kTrain;
  }
  std::vector<int> right(10);
  for (int64_t i = kTrain; i < kTrain + kTest; ++i) {
    const uint8_t* image = digits.images.data<uint8_t>() + i * kPixels;
    std::vector<double> distances(10);
    for (int c = 0; c < 10; ++c) {
      for (int64_t p = 0; p < kPixels; ++p) distances[c] += (image[p] - means[c][p]) * (image[p] - means[c][p]);
    }
    right[i % 10] += std::min_element(distances.begin(), distances.end()) - distances.begin() == i % 10;
  }
  for (int c = 0; c < 10; ++c) {
    CAPTURE(c);
    CHECK(right[c] > 50);
  }
}

}  // namespace
}  // namespace official::mnist
