#include "utils/data/jpeg.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "utils/data/jpeg_encoder.h"

namespace official::data {
namespace {

using Catch::Contains;
using Pixels = std::vector<int>;

Pixels Copy(const RgbImage& image) {
  Pixels pixels;
  for (int64_t y = 0; y < image.size.height; ++y) {
    const uint8_t* row = image.pixels + y * image.stride;
    pixels.insert(pixels.end(), row, row + 3 * image.size.width);
  }
  return pixels;
}

Pixels Decode(const std::string& jpeg) {
  JpegReader reader(jpeg);
  reader.ReadSize().value();
  std::vector<uint8_t> buffer;
  return Copy(reader.Decode(&buffer).value());
}

absl::StatusOr<Pixels> TryDecode(const std::string& jpeg, const ImageWindow* window = nullptr) {
  JpegReader reader(jpeg);
  const absl::Status status = reader.ReadSize().status();
  if (!status.ok()) return status;
  std::vector<uint8_t> buffer;
  const absl::StatusOr<RgbImage> image =
      window != nullptr ? reader.DecodeWindow(*window, &buffer) : reader.Decode(&buffer);
  if (!image.ok()) return image.status();
  return Copy(*image);
}

std::string Error(const std::string& jpeg) {
  const absl::Status status = TryDecode(jpeg).status();
  CHECK(absl::IsDataLoss(status));
  return std::string(status.message());
}

int64_t LargestDifference(const Pixels& a, const Pixels& b) {
  REQUIRE(a.size() == b.size());
  int64_t largest = 0;
  for (size_t i = 0; i < a.size(); ++i) largest = std::max<int64_t>(largest, std::abs(a[i] - b[i]));
  return largest;
}

TEST_CASE("Images of every kind come out as the RGB that went in") {
  const auto settings =
      GENERATE(JpegSettings{.height = 50, .width = 67}, JpegSettings{.height = 50, .width = 67, .subsampled = false},
               JpegSettings{.height = 33, .width = 16, .progressive = true}, JpegSettings{.height = 1, .width = 1},
               JpegSettings{.height = 1, .width = 90}, JpegSettings{.height = 90, .width = 1});
  const std::vector<uint8_t> picture = SmoothPicture(settings.height, settings.width, 3);
  CHECK(JpegReader(SmoothJpeg(settings)).ReadSize().value() == ImageSize{settings.height, settings.width});
  CHECK(LargestDifference(Decode(SmoothJpeg(settings)), {picture.begin(), picture.end()}) <= 8);
}

TEST_CASE("Grey becomes equal red, green and blue") {
  const JpegSettings settings{.height = 20, .width = 30, .channels = 1};
  Pixels expected;
  for (const uint8_t value : SmoothPicture(20, 30, 1)) expected.insert(expected.end(), 3, value);
  CHECK(LargestDifference(Decode(SmoothJpeg(settings)), expected) <= 6);
}

// The formulas of tensorflow/core/lib/jpeg/jpeg_mem.cc.
TEST_CASE("Inks become RGB, with Adobe's marker and without") {
  const bool adobe = GENERATE(true, false);
  const JpegSettings settings{.height = 20, .width = 30, .channels = 4, .adobe_marker = adobe};
  const std::vector<uint8_t> inks = SmoothPicture(20, 30, 4);
  Pixels expected;
  for (size_t i = 0; i < inks.size(); i += 4) {
    for (int c = 0; c < 3; ++c) {
      expected.push_back(adobe ? inks[i + 3] * inks[i + c] / 255 : (255 - inks[i + 3]) * (255 - inks[i + c]) / 255);
    }
  }
  CHECK(LargestDifference(Decode(SmoothJpeg(settings)), expected) <= 10);
  const ImageWindow window{3, 11, 9, 8};
  Pixels window_expected;
  for (int y = 3; y < 12; ++y) {
    window_expected.insert(window_expected.end(), &expected[(y * 30 + 11) * 3], &expected[(y * 30 + 19) * 3]);
  }
  CHECK(LargestDifference(TryDecode(SmoothJpeg(settings), &window).value(), window_expected) <= 10);
}

TEST_CASE("A window has the pixels of the whole image, but for colours at its sides") {
  const bool subsampled = GENERATE(true, false), progressive = GENERATE(true, false);
  const std::string jpeg =
      SmoothJpeg({.height = 70, .width = 101, .subsampled = subsampled, .progressive = progressive});
  const Pixels whole = Decode(jpeg);
  const auto window = GENERATE(ImageWindow{0, 0, 70, 101}, ImageWindow{0, 0, 1, 1}, ImageWindow{69, 100, 1, 1},
                               ImageWindow{17, 33, 40, 51}, ImageWindow{16, 32, 16, 16}, ImageWindow{3, 0, 5, 101});
  const Pixels part = TryDecode(jpeg, &window).value();
  REQUIRE(part.size() == static_cast<size_t>(window.height * window.width * 3));
  for (int64_t y = 0; y < window.height; ++y) {
    for (int64_t x = 0; x < window.width; ++x) {
      const bool at_side = x == 0 || x == window.width - 1;
      for (int c = 0; c < 3; ++c) {
        const int difference =
            part[(y * window.width + x) * 3 + c] - whole[((y + window.top) * 101 + x + window.left) * 3 + c];
        CHECK(std::abs(difference) <= (at_side && subsampled ? 12 : 0));
      }
    }
  }
}

TEST_CASE("Scaled decoding rounds the size up and averages the pixels") {
  const std::string jpeg = SmoothJpeg({.height = 50, .width = 67});
  const std::vector<uint8_t> picture = SmoothPicture(50, 67, 3);
  JpegReader reader(jpeg);
  REQUIRE(reader.ReadSize().ok());
  CHECK(reader.SetScale(4) == ImageSize{13, 17});
  std::vector<uint8_t> buffer;
  const Pixels small = Copy(reader.DecodeWindow({2, 3, 8, 10}, &buffer).value());
  for (int y = 0; y < 8; ++y) {
    for (int x = 0; x < 10; ++x) {
      double mean = 0;
      for (int i = 0; i < 16; ++i) mean += picture[((4 * (y + 2) + i / 4) * 67 + 4 * (x + 3) + i % 4) * 3] / 16.0;
      CHECK(small[(y * 10 + x) * 3] == Approx(mean).margin(6));
    }
  }
}

TEST_CASE("A cut image is an error, wherever it is cut") {
  const JpegSettings settings{.height = 40, .width = 40, .progressive = GENERATE(false, true)};
  const std::string jpeg = SmoothJpeg(settings);
  for (size_t size = 0; size < jpeg.size(); ++size) {
    const std::string message = Error(jpeg.substr(0, size));
    CHECK_THAT(message, Contains("the JPEG image "));
  }
}

TEST_CASE("What is missing below a window is not missed") {
  const std::string jpeg = SmoothJpeg({.height = 400, .width = 400});
  const ImageWindow top{0, 100, 50, 50}, bottom{300, 100, 50, 50};
  CHECK(TryDecode(jpeg.substr(0, jpeg.size() / 2), &top).value() == TryDecode(jpeg, &top).value());
  CHECK(absl::IsDataLoss(TryDecode(jpeg.substr(0, jpeg.size() / 2), &bottom).status()));
}

// The frame header (SOF0): marker, length, precision, then height and width.
std::string WithSize(std::string jpeg, int height, int width) {
  const size_t frame = jpeg.find("\xff\xc0");
  REQUIRE(frame != std::string::npos);
  for (const auto& [offset, value] : {std::pair{5, height}, std::pair{7, width}}) {
    jpeg[frame + offset] = static_cast<char>(value >> 8);
    jpeg[frame + offset + 1] = static_cast<char>(value);
  }
  return jpeg;
}

TEST_CASE("Images that are too large, or larger than their bytes can hold, are refused before memory is taken") {
  const std::string jpeg = SmoothJpeg({.height = 16, .width = 16});
  CHECK_THAT(Error(WithSize(jpeg, 65500, 65500)), Contains("65500 x 65500 pixels, more than the limit of 2^29 values"));
  CHECK_THAT(Error(WithSize(jpeg, 13000, 13000)),
             Contains(absl::StrCat("13000 x 13000 pixels, more than its ", jpeg.size(), " bytes can hold")));
  CHECK_THAT(Error(WithSize(jpeg, 16, 0)), Contains("the JPEG image cannot be decoded"));
}

TEST_CASE("A file that is not a JPEG is refused") {
  CHECK_FALSE(IsJpeg(""));
  CHECK_FALSE(IsJpeg("\xff\xd8"));
  CHECK(IsJpeg(SmoothJpeg({.height = 1, .width = 1})));
  CHECK_THAT(Error(""), Contains("Empty input file"));
  CHECK_THAT(Error("GIF89a, or whatever"), Contains("Not a JPEG file"));
}

}  // namespace
}  // namespace official::data
