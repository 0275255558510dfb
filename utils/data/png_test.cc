#include "utils/data/png.h"

#include <sys/resource.h>
#include <unistd.h>
#include <zlib.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <vector>

#include "utils/data/png_encoder.h"

namespace official::data {
namespace {

using Catch::Contains;
using compute::Shape;
using compute::Tensor;
using Bytes = std::string;

std::string Write(const std::string& name, const Bytes& bytes) {
  const std::string path = std::string(std::getenv("TEST_TMPDIR")) + "/" + name;
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

Bytes BigEndian(uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16), static_cast<char>(value >> 8),
          static_cast<char>(value)};
}

// PNG files put together by hand from the specification (ISO/IEC 15948), with zlib for the deflate stream and the
// checksums.
Bytes Chunk(const Bytes& type, const Bytes& data) {
  const Bytes body = type + data;
  return BigEndian(data.size()) + body + BigEndian(crc32(0, reinterpret_cast<const Bytef*>(body.data()), body.size()));
}

struct Header {
  uint32_t width, height;
  char bits;
  char color_type;  // 0 grey, 2 RGB, 3 palette, 4 grey and alpha, 6 RGB and alpha
  char interlace = 0;
};

// `rows`: for each row a filter byte (0: none) and the packed pixels.
Bytes Png(const Header& header, const Bytes& rows, const Bytes& more_chunks = "") {
  Bytes deflated(compressBound(rows.size()), '\0');
  uLongf size = deflated.size();
  compress(reinterpret_cast<Bytef*>(deflated.data()), &size, reinterpret_cast<const Bytef*>(rows.data()), rows.size());
  deflated.resize(size);
  const Bytes ihdr = BigEndian(header.width) + BigEndian(header.height) +
                     Bytes{header.bits, header.color_type, 0, 0, header.interlace};
  return "\x89PNG\r\n\x1a\n" + Chunk("IHDR", ihdr) + more_chunks + Chunk("IDAT", deflated) + Chunk("IEND", "");
}

Tensor Read(const Bytes& png) { return ReadPng(Write("image.png", png)).value(); }
std::vector<int> Pixels(const Tensor& image) {
  return {image.data<uint8_t>(), image.data<uint8_t>() + image.num_elements()};
}

TEST_CASE("Grey, RGB and alpha pixels keep their values and channels") {
  const Tensor grey = Read(Png({3, 2, 8, 0}, {0, 1, 2, 3, 0, 4, 5, '\xff'}));
  CHECK(grey.shape() == Shape({2, 3, 1}));
  CHECK(Pixels(grey) == std::vector<int>{1, 2, 3, 4, 5, 255});
  const Tensor rgb = Read(Png({2, 1, 8, 2}, {0, 1, 2, 3, 4, 5, 6}));
  CHECK(rgb.shape() == Shape({1, 2, 3}));
  CHECK(Pixels(rgb) == std::vector<int>{1, 2, 3, 4, 5, 6});
  const Tensor grey_alpha = Read(Png({1, 1, 8, 4}, {0, 9, 8}));
  CHECK(grey_alpha.shape() == Shape({1, 1, 2}));
  const Tensor rgba = Read(Png({1, 2, 8, 6}, {0, 1, 2, 3, 4, 0, 5, 6, 7, 8}));
  CHECK(rgba.shape() == Shape({2, 1, 4}));
  CHECK(Pixels(rgba) == std::vector<int>{1, 2, 3, 4, 5, 6, 7, 8});
}

TEST_CASE("Other bit depths become eight bits") {
  CHECK(Pixels(Read(Png({4, 1, 1, 0}, {0, '\x50'}))) == std::vector<int>{0, 255, 0, 255});
  CHECK(Pixels(Read(Png({2, 1, 4, 0}, {0, '\x1f'}))) == std::vector<int>{17, 255});
  CHECK(Pixels(Read(Png({2, 1, 16, 0}, {0, '\x80', 0, '\xff', '\xff'}))) == std::vector<int>{128, 255});
}

TEST_CASE("What is encoded reads back") {
  for (const int64_t channels : {1, 2, 3, 4}) {
    const Tensor image(compute::DType::kUInt8, {3, 5, channels});
    for (int64_t i = 0; i < image.num_elements(); ++i) image.data<uint8_t>()[i] = static_cast<uint8_t>(i * 37);
    const Tensor read = Read(EncodePng(image));
    CHECK(read.shape() == image.shape());
    CHECK(Pixels(read) == Pixels(image));
  }
}

TEST_CASE("Palettes become RGB, with transparency RGB and alpha") {
  const Bytes palette = Chunk("PLTE", {10, 20, 30, 40, 50, 60});
  CHECK(Pixels(Read(Png({2, 1, 1, 3}, {0, '\x40'}, palette))) == std::vector<int>{10, 20, 30, 40, 50, 60});
  CHECK(Pixels(Read(Png({2, 1, 1, 3}, {0, '\x40'}, palette + Chunk("tRNS", {7})))) ==
        std::vector<int>{10, 20, 30, 7, 40, 50, 60, 255});
}

TEST_CASE("Interlaced images are put together") {
  // Adam7 sends a 2 x 2 image in three passes: (0, 0), then (1, 0), then row 1.
  CHECK(Pixels(Read(Png({2, 2, 8, 0, /*interlace=*/1}, {0, 1, 0, 2, 0, 3, 4}))) == std::vector<int>{1, 2, 3, 4});
}

absl::Status Error(const Bytes& bytes) {
  const std::string path = Write("bad.png", bytes);
  const absl::Status status = ReadPng(path).status();
  CHECK_FALSE(status.ok());
  CHECK_THAT(std::string(status.message()), Contains(path));
  return status;
}

TEST_CASE("What is not a complete PNG is refused") {
  const Bytes good = Png({3, 2, 8, 0}, {0, 1, 2, 3, 0, 4, 5, 6});
  CHECK_THAT(std::string(Error("").message()), Contains("is not a PNG"));
  CHECK_THAT(std::string(Error("GIF89a").message()), Contains("is not a PNG"));
  for (size_t size = 1; size < good.size(); ++size) CHECK(absl::IsDataLoss(Error(good.substr(0, size))));
  Bytes flipped = good;
  flipped[good.find("IDAT") + 6] ^= 1;
  CHECK(absl::IsDataLoss(Error(flipped)));
  CHECK(absl::IsDataLoss(Error(Png({3, 2, 8, 0}, {0, 1, 2, 3}))));
  CHECK(absl::IsNotFound(ReadPng("/no/such/file.png").status()));
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they take terabytes of addresses
TEST_CASE("A part that claims to be large takes no memory") {
  const Bytes good = Png({1, 1, 8, 0}, {0, 1}), exif = BigEndian(0x77000000) + "eXIf" + Bytes(100, 'x');
  long pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  rlimit before;
  REQUIRE(getrlimit(RLIMIT_AS, &before) == 0);
  const rlimit little = {static_cast<rlim_t>(pages * getpagesize() + (64 << 20)), before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_AS, &little) == 0);
  const absl::Status status = Error(good.substr(0, good.find("IDAT") - 4) + exif);
  setrlimit(RLIMIT_AS, &before);
  CHECK(absl::IsDataLoss(status));
  CHECK_THAT(std::string(status.message()), Contains("the file is cut"));
}
#endif

TEST_CASE("Sizes beyond the limit are refused before memory is taken") {
  const absl::Status status = Error(Png({60000, 60000, 8, 0}, {0}));
  CHECK(absl::IsDataLoss(status));
  CHECK_THAT(std::string(status.message()), Contains("60000 x 60000 pixels are more than the limit of 67108864"));
  CHECK(absl::IsDataLoss(Error(Png({0, 1, 8, 0}, {0}))));
  const absl::Status empty = Error(Png({8000, 8000, 8, 6}, {0}));
  CHECK(absl::IsDataLoss(empty));
  CHECK_THAT(std::string(empty.message()), Contains("8000 x 8000 pixels are more than its") && Contains("can hold"));
}

TEST_CASE("An image that compresses as well as any is read") {
  CHECK(Read(Png({4000, 4000, 8, 0}, Bytes(4001 * 4000, '\0'))).num_elements() == 16000000);
}

}  // namespace
}  // namespace official::data
