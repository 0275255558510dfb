#include "utils/data/idx.h"

#include <zlib.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "utils/data/gzip.h"
#include "utils/files/files.h"

namespace official::data {
namespace {

using Catch::Contains;
using compute::Shape;
using compute::Tensor;

std::string TempPath(const std::string& name) { return std::string(std::getenv("TEST_TMPDIR")) + "/" + name; }

std::string Write(const std::string& name, const std::string& bytes) {
  const std::string path = TempPath(name);
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

std::string BigEndian(uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16), static_cast<char>(value >> 8),
          static_cast<char>(value)};
}
std::string Header(std::vector<uint32_t> dims) {
  std::string bytes = BigEndian(0x800 + dims.size());
  for (uint32_t dim : dims) bytes += BigEndian(dim);
  return bytes;
}

// zlib is a gzip writer that is not ours.
std::string Gzip(const std::string& bytes) {
  std::string out(compressBound(bytes.size()) + 64, '\0');
  z_stream stream = {};
  REQUIRE(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = bytes.size();
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = out.size();
  REQUIRE(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

// Bytes that compress, but not to nothing.
std::string Pattern(int64_t size) {
  std::string bytes(size, '\0');
  uint32_t state = 1;
  for (char& byte : bytes) byte = static_cast<char>((state = state * 1664525 + 1013904223) >> 28);
  return bytes;
}

std::string Message(const std::string& path) {
  const absl::StatusOr<Tensor> result = ReadIdx(path);
  REQUIRE_FALSE(result.ok());
  CHECK(absl::IsDataLoss(result.status()));
  CHECK_THAT(std::string(result.status().message()), Contains(path));
  return std::string(result.status().message());
}

TEST_CASE("ReadIdx reads plain and gzipped files alike") {
  const std::string bytes = Header({2, 3}) + std::string("\x00\x01\x02\xfd\xfe\xff", 6);
  for (const std::string& path : {Write("plain", bytes), Write("zipped", Gzip(bytes))}) {
    const Tensor tensor = ReadIdx(path).value();
    CHECK(tensor.shape() == Shape({2, 3}));
    CHECK(tensor.data<uint8_t>()[2] == 2);
    CHECK(tensor.data<uint8_t>()[5] == 255);
  }
}

TEST_CASE("ReadIdx reads files of many chunks") {
  const std::string data = Pattern(10'000'007);
  const std::string bytes = Header({10'000'007}) + data;
  for (const std::string& path : {Write("plain", bytes), Write("zipped", Gzip(bytes))}) {
    const Tensor tensor = ReadIdx(path).value();
    CHECK(std::equal(data.begin(), data.end(), reinterpret_cast<const char*>(tensor.raw_data())));
  }
}

TEST_CASE("Zeros behind gzip data are ignored, anything else is not") {
  const std::string bytes = Header({3}) + "abc", zeros(512, '\0');
  for (const std::string& behind : {std::string(1, '\0'), zeros}) {
    const auto tensor = ReadIdx(Write("padded", Gzip(bytes) + behind));
    REQUIRE(tensor.ok());
    CHECK(tensor->shape() == Shape({3}));
  }
  CHECK(absl::IsDataLoss(ReadIdx(Write("trailing", Gzip(bytes) + zeros + "x")).status()));
}

TEST_CASE("A gzip file of several members is one stream") {
  const std::string path = Write("members", Gzip(Header({3})) + Gzip("a") + Gzip("") + Gzip("bc"));
  CHECK(ReadIdx(path).value().data<uint8_t>()[2] == 'c');
}

TEST_CASE("An IDX file without elements is an empty tensor") {
  CHECK(ReadIdx(Write("none", Header({0, 28, 28}))).value().shape() == Shape({0, 28, 28}));
}

TEST_CASE("Empty and cut headers are refused") {
  CHECK_THAT(Message(Write("empty", "")), Contains("is empty"));
  CHECK_THAT(Message(Write("empty.gz", Gzip(""))), Contains("is empty"));
  CHECK_THAT(Message(Write("short", "ab")), Contains("expected 4 bytes, found 2"));
  CHECK_THAT(Message(Write("cut", Header({60000, 28, 28}).substr(0, 10))), Contains("expected 16 bytes, found 10"));
}

TEST_CASE("Magic numbers other than those of unsigned bytes are refused") {
  CHECK_THAT(Message(Write("html", "<!DOCTYPE html>")),
             Contains("found magic number 0x3c21444f (the file is an HTML page)"));
  CHECK_THAT(Message(Write("floats", BigEndian(0x0d01) + BigEndian(1) + "abcd")), Contains("0x0d01"));
  CHECK_THAT(Message(Write("scalar", BigEndian(0x0800) + "a")), Contains("0x0800"));
}

TEST_CASE("Data that is cut or longer than the header says is refused with both sizes") {
  const std::string bytes = Header({100, 28, 28}) + Pattern(100 * 784);
  CHECK_THAT(Message(Write("cut", bytes.substr(0, 50000))),
             Contains("expected 78416 bytes (100 x 28 x 28), found 50000"));
  CHECK_THAT(Message(Write("long", bytes + "x")), Contains("expected 78416 bytes (100 x 28 x 28), found 78417"));
  CHECK_THAT(Message(Write("long.gz", Gzip(bytes + "x"))), Contains("expected 78416") && Contains("found 78417"));
  CHECK_THAT(Message(Write("short.gz", Gzip(bytes.substr(0, 50000)))),
             Contains("expected 78416 bytes (100 x 28 x 28), found 50000 inflated"));
}

TEST_CASE("Damaged gzip files are refused") {
  const std::string bytes = Header({100, 28, 28}) + Pattern(100 * 784);
  const std::string zipped = Gzip(bytes);
  CHECK_THAT(Message(Write("cut.gz", zipped.substr(0, zipped.size() / 2))), Contains("ends early"));
  CHECK_THAT(Message(Write("cut2.gz", zipped.substr(0, 3))), Contains("ends early"));
  std::string flipped = zipped;
  flipped[flipped.size() - 6] ^= 1;  // in the checksum
  CHECK_THAT(Message(Write("crc.gz", flipped)), Contains("checksum"));
  std::string garbage = zipped;
  for (size_t i = 100; i < 200; ++i) garbage[i] = '\xff';
  Message(Write("garbage.gz", garbage));
}

TEST_CASE("A header that claims more than the file can hold is refused by arithmetic alone") {
  const std::string plain = Header({4'000'000'000u, 4'000'000'000u}) + "abc";
  CHECK_THAT(Message(Write("huge", plain)), Contains("4000000000 x 4000000000") && Contains("found 15"));
  CHECK_THAT(Message(Write("huge.gz", Gzip(Header({4'000'000'000u}) + "abc"))), Contains("cannot hold them"));
  CHECK_THAT(Message(Write("large.gz", Gzip(Header({20'000}) + "abc"))), Contains("found 11 inflated"));
  CHECK_THAT(Message(Write("overflow", Header({0x80000000u, 0x80000000u, 0x80000000u}))), Contains("than any file"));
  CHECK_THAT(Message(Write("overflow64", Header({0x80000000u, 0x80000000u, 4}))), Contains("than any file"));
}

TEST_CASE("Missing files, directories and pipes are errors of their own") {
  CHECK(absl::IsNotFound(ReadIdx(TempPath("missing")).status()));
  CHECK(absl::IsNotFound(ReadIdx(TempPath(".")).status()));
}

TEST_CASE("The header check comes before the data is looked at") {
  const std::string path = Write("cut", Header({60000, 28, 29}));
  const absl::Status status = ReadIdx(path, [](const IdxHeader& header) {
                                return absl::DataLossError(absl::StrCat(header.magic, " ", header.dims[2]));
                              }).status();
  CHECK(status == absl::DataLossError("2051 29"));
}

TEST_CASE("Gunzip writes the inflated file, or nothing") {
  const std::string data = Pattern(3'000'000);
  const std::string from = Write("data.gz", Gzip(data)), to = TempPath("data");
  REQUIRE(Gunzip(from, to, data.size()).ok());
  CHECK(files::ReadFile(to, data.size()).value() == data);

  const std::string other = TempPath("other");
  CHECK(absl::IsDataLoss(Gunzip(from, other, data.size() - 1)));
  CHECK(absl::IsDataLoss(Gunzip(Write("cut.gz", Gzip(data).substr(0, 1000)), other, data.size())));
  CHECK(absl::IsDataLoss(Gunzip(to, other, data.size())));
  CHECK_FALSE(files::Exists(other));
}

}  // namespace
}  // namespace official::data
