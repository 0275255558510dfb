#include "official/resnet/imagenet/preprocessing.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "utils/data/jpeg_encoder.h"

namespace official::resnet {
namespace {

using Catch::Contains;

std::vector<float> Evaluate(const std::string& image) {
  PreprocessingScratch scratch;
  std::vector<float> out(224 * 224 * 3);
  const absl::Status status = PreprocessForEvaluation(image, scratch, out.data());
  if (!status.ok()) throw std::runtime_error(std::string(status.message()));
  return out;
}

std::vector<float> Train(const std::string& image, int64_t index, bool fast_jpeg = false) {
  PreprocessingScratch scratch;
  std::vector<float> out(224 * 224 * 3);
  data::Random random(/*seed=*/1, /*epoch=*/0, index);
  const absl::Status status = PreprocessForTraining(image, {}, fast_jpeg, random, scratch, out.data());
  if (!status.ok()) throw std::runtime_error(std::string(status.message()));
  return out;
}

// The picture of data::SmoothPicture between its pixels.
double Picture(double y, double x, int c) {
  return 128 + 60 * std::sin(0.02 * x + c) + 50 * std::cos(0.017 * y * (c + 1));
}
constexpr double kMeans[] = {123.68, 116.78, 103.94};

TEST_CASE("Evaluation takes the middle of the image scaled to 256 pixels on its short side") {
  // Width and height with the scaled size that float arithmetic gives (TensorFlow 1.10).
  const auto [height, width, scaled_height, scaled_width] =
      GENERATE(table<int, int, int, int>({{333, 500, 256, 384}, {500, 375, 341, 256}, {82, 100, 255, 312}}));
  const std::vector<float> out = Evaluate(data::SmoothJpeg({.height = height, .width = width}));
  const int top = (scaled_height - 224) / 2, left = (scaled_width - 224) / 2;
  double largest = 0;
  for (int y = 0; y < 224; ++y) {
    for (int x = 0; x < 224; ++x) {
      const double from_y = std::min((y + top) * static_cast<double>(height) / scaled_height, height - 1.0);
      const double from_x = std::min((x + left) * static_cast<double>(width) / scaled_width, width - 1.0);
      for (int c = 0; c < 3; ++c) {
        const double expected = std::floor(Picture(from_y, from_x, c)) - kMeans[c];
        largest = std::max(largest, std::abs(out[(y * 224 + x) * 3 + c] - expected));
      }
    }
  }
  CHECK(largest < 8);
}

TEST_CASE("Training is a function of its random numbers, and mirrors every other image") {
  // Grows from left to right, so that mirroring shows.
  std::vector<uint8_t> pixels;
  for (int i = 0; i < 300 * 250; ++i) pixels.insert(pixels.end(), 3, static_cast<uint8_t>(i % 250));
  const std::string jpeg = data::EncodeJpeg({.height = 300, .width = 250}, pixels);
  CHECK(Train(jpeg, 3) == Train(jpeg, 3));
  int mirrored = 0, same = 0;
  std::vector<float> before;
  for (int64_t index = 0; index < 100; ++index) {
    const std::vector<float> out = Train(jpeg, index);
    mirrored += out.front() > out.back();
    same += out == before;
    before = out;
  }
  CHECK(same == 0);
  CHECK((mirrored > 30 && mirrored < 70));
}

TEST_CASE("Fast decoding gives nearly the same pixels of a large image, and the same of a small one") {
  const std::string small = data::SmoothJpeg({.height = 300, .width = 400});
  const std::string large = data::SmoothJpeg({.height = 2000, .width = 2700});
  for (int64_t index = 0; index < 5; ++index) {
    CHECK(Train(small, index) == Train(small, index, /*fast_jpeg=*/true));
    const std::vector<float> exact = Train(large, index), fast = Train(large, index, /*fast_jpeg=*/true);
    // A pixel of the fast one is the mean of a block, whose middle is up to half a pixel further down and right; and
    // blocks begin where they can. That makes less of a difference than one pixel each way.
    double difference = 0, one_pixel = 0;
    constexpr size_t kNeighbour = 3 * (224 + 1);
    for (size_t i = 0; i + kNeighbour < exact.size(); ++i) {
      difference += std::abs(exact[i] - fast[i]);
      one_pixel += std::abs(exact[i] - exact[i + kNeighbour]);
    }
    CHECK(difference > 0);
    CHECK(difference < one_pixel);
  }
}

TEST_CASE("Images of one pixel, grey ones and those for print are taken") {
  for (const int channels : {1, 3, 4}) {
    for (const int size : {1, 40}) {
      const std::string jpeg = data::SmoothJpeg({.height = size, .width = size, .channels = channels});
      CHECK(Evaluate(jpeg).size() == 224 * 224 * 3);
      CHECK(Train(jpeg, 0).size() == 224 * 224 * 3);
    }
  }
}

// 1 x 1 pixels, grey 200; written with Python's zlib.
const std::string kGreyPng(
    "\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\0\x01\0\0\0\x01\x08\0\0\0\0\x3a\x7e\x9b\x55"
    "\0\0\0\x0aIDAT\x78\x9c\x63\x38\x01\0\0\xca\0\xc9\x99\xca\x5d\x7e"
    "\0\0\0\0IEND\xae\x42\x60\x82",
    67);

TEST_CASE("PNG is recognized by its content") {
  const std::vector<float> out = Evaluate(kGreyPng);
  for (int c = 0; c < 3; ++c) CHECK(out[c] == Approx(200 - kMeans[c]));
  CHECK(Train(kGreyPng, 0) == out);
}

TEST_CASE("What is not an image, or a damaged one, is refused") {
  const auto [image, message] = GENERATE(table<std::string, std::string>({
      {"", "the image is empty"},
      {"GIF89a", "the image is neither JPEG nor PNG (the file is a GIF image)"},
      {"text", "the image is neither JPEG nor PNG"},
      {data::SmoothJpeg({.height = 50, .width = 50}).substr(0, 700), "the JPEG image cannot be decoded"},
      {kGreyPng.substr(0, 50), "the PNG image"},
  }));
  CHECK_THROWS_WITH(Evaluate(image), Contains(message));
  CHECK_THROWS_WITH(Train(image, 0), Contains(message));
}

}  // namespace
}  // namespace official::resnet
