#include "utils/train/checkpoint/safetensors.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "utils/files/files.h"

namespace official::train {
namespace {

using Catch::Matchers::Contains;
using compute::DType;
using compute::Tensor;

std::string NewPath() {
  static int counter = 0;
  return absl::StrCat(std::getenv("TEST_TMPDIR"), "/file-", ++counter, ".safetensors");
}

std::string Size(uint64_t value) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<char>(value >> (8 * i)));
  return bytes;
}

// The file with this header, its size before it, and this many bytes of data.
std::string FileOf(const std::string& header, int data_bytes) {
  return absl::StrCat(Size(header.size()), header, std::string(data_bytes, '\0'));
}

std::string Written(const std::string& bytes) {
  const std::string path = NewPath();
  REQUIRE(files::WriteFileAtomically(path, bytes).ok());
  return path;
}

absl::Status OpenStatus(const std::string& bytes) { return SafetensorsReader::Open(Written(bytes)).status(); }

std::map<std::string, SafetensorsTensor> InMemory(const std::map<std::string, Tensor>& tensors) {
  std::map<std::string, SafetensorsTensor> items;
  for (const auto& [name, tensor] : tensors) items[name] = {tensor.type(), [tensor = tensor] { return tensor; }};
  return items;
}

std::string Bytes(const Tensor& tensor) {
  return std::string(static_cast<const char*>(tensor.raw_data()), tensor.num_bytes());
}

TEST_CASE("A safetensors file has the layout that the format describes") {
  const std::string path = NewPath();
  const auto tensors = InMemory({{"step", Tensor::Scalar<int64_t>(7)},
                                 {"b\"é", Tensor::Of<float>({1, 2}, {1, 2})},
                                 {"a", Tensor::Of<float>({0, 3}, {})},
                                 {"flag", Tensor::Scalar<bool>(true)}});
  REQUIRE(WriteSafetensors(path, tensors, {{"_run/data", "x\n"}}, {{"format", "tf"}}).ok());
  std::string header = R"({"__metadata__":{"format":"tf","string:_run/data":"x\n"},)"
                       R"("step":{"dtype":"I64","shape":[],"data_offsets":[0,8]},)"
                       R"("a":{"dtype":"F32","shape":[0,3],"data_offsets":[8,8]},)"
                       R"("b\"é":{"dtype":"F32","shape":[1,2],"data_offsets":[8,16]},)"
                       R"("flag":{"dtype":"BOOL","shape":[],"data_offsets":[16,17]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const std::string data("\7\0\0\0\0\0\0\0\0\0\x80\x3f\0\0\0\x40\1", 17);
  CHECK(files::ReadFile(path, 1 << 20).value() == absl::StrCat(Size(header.size()), header, data));
}

TEST_CASE("Tensors of all types come back bit for bit") {
  std::map<std::string, Tensor> tensors;
  int n = 0;
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64, DType::kInt32,
                            DType::kInt64, DType::kUInt8, DType::kBool}) {
    Tensor tensor(dtype, {2, 3});
    for (int i = 0; i < tensor.num_bytes(); ++i) {
      static_cast<uint8_t*>(tensor.raw_data())[i] = dtype == DType::kBool ? i % 2 : 37 * i + ++n;
    }
    tensors[std::string(compute::DTypeName(dtype))] = tensor;
  }
  tensors["nan"] = Tensor::Scalar(std::numeric_limits<float>::quiet_NaN());
  const std::string path = NewPath();
  REQUIRE(WriteSafetensors(path, InMemory(tensors), {{"text", "ä"}}, {}).ok());
  const auto reader = SafetensorsReader::Open(path).value();
  CHECK(reader->ListTensors().size() == tensors.size() + 1);
  for (const auto& [name, tensor] : tensors) {
    CAPTURE(name);
    const Tensor read = reader->Read(name).value();
    CHECK(read.type() == tensor.type());
    CHECK(Bytes(read) == Bytes(tensor));
    CHECK(reader->Verify(name).ok());
  }
  CHECK(reader->ReadStrings("text").value() == std::vector<std::string>{"ä"});
  CHECK(absl::IsUnimplemented(reader->Read("text").status()));
  CHECK(absl::IsNotFound(reader->Read("none").status()));
  CHECK(absl::IsNotFound(reader->ReadStrings("none").status()));
  CHECK(reader->metadata().empty());
}

TEST_CASE("Tensors of types that cannot be read are listed") {
  const auto reader =
      SafetensorsReader::Open(Written(FileOf(R"({"a":{"dtype":"I8","shape":[3],"data_offsets":[0,3]}})", 3))).value();
  CHECK(reader->Find("a")->dtype_name == "int8");
  CHECK(reader->Find("a")->num_bytes == 3);
  CHECK(absl::IsUnimplemented(reader->Read("a").status()));
  CHECK(reader->Verify("a").ok());
}

TEST_CASE("The members of a tensor may come in any order, and the tensors in another than their bytes") {
  const auto reader = SafetensorsReader::Open(
                          Written(FileOf(R"({"b":{"shape":[1],"data_offsets":[4,8],"dtype":"F32"},)"
                                         R"("a":{"data_offsets":[0,4],"dtype":"I32","shape":[]}, "__metadata__":{}}  )",
                                         8)))
                          .value();
  CHECK(reader->Find("b")->offset == reader->Find("a")->offset + 4);
}

TEST_CASE("The metadata may be null, as the safetensors library allows") {
  const std::string header = R"({"__metadata__":null,"a":{"dtype":"U8","shape":[],"data_offsets":[0,1]}})";
  const auto reader = SafetensorsReader::Open(Written(FileOf(header, 1))).value();
  CHECK(reader->metadata().empty());
  CHECK(reader->Find("a"));
}

TEST_CASE("Hostile headers are refused") {
  const auto [header, data_bytes, why] = GENERATE(table<std::string, int, std::string>({
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4, "needs 8 bytes"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 3, "the file has 3 bytes of data"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 5, "its tensors end at byte"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8, "a gap"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}})",
       12, "a gap"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
       8, "an overlap"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
       4, "an overlap"},
      {R"({"a":{"dtype":"F32","shape":[0],"data_offsets":[4,0]}})", 4, "data_offsets [4, 0]"},
      {R"({"a":{"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0]}})", 0, "impossible shape"},
      {R"({"a":{"dtype":"F32","shape":[4294967296,4294967296,0],"data_offsets":[0,0]}})", 0, "impossible shape"},
      {R"({"a":{"dtype":"F32","shape":[0,4294967296,4294967296],"data_offsets":[0,0]}})", 0, "impossible shape"},
      {R"({"a":{"dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,0]}})", 0, "above 2^63 - 1"},
      {R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,0]}})", 0, "a negative number"},
      {R"({"a":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}})", 4, "not whole"},
      {R"({"a":{"dtype":"F32","shape":[[1]],"data_offsets":[0,4]}})", 4, "a list"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", 4, "two numbers"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4,8]}})", 4, "a number"},
      {R"({"a":{"dtype":"F33","shape":[1],"data_offsets":[0,4]}})", 4, "unknown type \"F33\""},
      {R"({"a":{"dtype":"F32","shape":[1]}})", 4, "needs dtype, shape and data_offsets"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1}})", 4, "unknown key \"x\""},
      {R"({"a":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4, "\"dtype\" is there twice"},
      {R"({"a":{"dtype":"U8","shape":[],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[],"data_offsets":[1,2]}})", 2,
       "\"a\" is there twice"},
      {R"({"__metadata__":{"a":1}})", 0, "a number"},
      {R"({"__metadata__":{},"__metadata__":{}})", 0, "\"__metadata__\" is there twice"},
      {R"({"__metadata__":{"string:a":""},"a":{"dtype":"U8","shape":[],"data_offsets":[0,1]}})", 1, "as string"},
      {R"({"a":null})", 0, "null"},
      {R"({"a":{"dtype":{}}})", 0, "an object"},
      {R"({"a")", 0, "not JSON"},
      {R"({} {})", 0, "not JSON"},
      {std::string("{}\0", 3), 0, "not JSON: there is an error at byte 3"},
      {R"({"__metadata__":null,"__metadata__":null})", 0, "\"__metadata__\" is there twice"},
      {R"({"__metadata__":{"a":null}})", 0, "null"},
      {"{\"\xff\":0}", 0, "not JSON"},
      {"{\"a\":" + std::string(100000, '['), 0, "a list"},
  }));
  CAPTURE(header);
  const absl::Status status = OpenStatus(FileOf(header, data_bytes));
  CHECK(absl::IsDataLoss(status));
  CHECK_THAT(std::string(status.message()), Contains(why) && Contains(".safetensors: "));
  CHECK(status.message().size() < 1000);
}

TEST_CASE("The size of the header must fit the file, and is bounded") {
  for (const std::string& bytes : {std::string(), std::string("1234567"), Size(0), Size(3) + "{}", Size(~0ull) + "{}",
                                   Size(1ull << 63) + "{}", Size(2) + "[]"}) {
    CHECK_THAT(std::string(OpenStatus(bytes).message()), Contains("is no safetensors file, or is cut off"));
  }
  CHECK_THAT(std::string(OpenStatus("PK\x03\x04 23456789").message()), Contains("(the file is a zip archive)"));
  const std::string long_header = "{" + std::string(100'000'000, ' ') + "}";
  CHECK_THAT(std::string(OpenStatus(FileOf(long_header, 0)).message()), Contains("at most 100000000 are read"));
  CHECK(absl::IsNotFound(SafetensorsReader::Open("/nowhere/x.safetensors").status()));
}

TEST_CASE("A byte that is no boolean is found") {
  std::string file = FileOf(R"({"a":{"dtype":"BOOL","shape":[1],"data_offsets":[0,1]}})", 1);
  file.back() = 2;
  CHECK(absl::IsDataLoss(SafetensorsReader::Open(Written(file)).value()->Read("a").status()));
}

TEST_CASE("Names that safetensors cannot have are refused, and nothing is written") {
  const Tensor one = Tensor::Scalar<float>(1);
  const std::string path = NewPath();
  for (const std::string name : {"\xff", "__metadata__"}) {
    CHECK(absl::IsInvalidArgument(WriteSafetensors(path, InMemory({{name, one}}), {}, {})));
  }
  CHECK(absl::IsInvalidArgument(WriteSafetensors(path, {}, {{"a", "\xc3"}}, {})));
  const SafetensorsTensor unreadable = {one.type(), [] { return absl::DataLossError("damaged"); }};
  CHECK(absl::IsDataLoss(WriteSafetensors(path, {{"a", unreadable}}, {}, {})));
  const std::vector<std::string> names = files::ListDirectory(files::DirectoryOf(path)).value();
  for (const std::string& name : names) {
    CHECK_FALSE(absl::StrContains(files::JoinPath(files::DirectoryOf(path), name), path));
  }
}

}  // namespace
}  // namespace official::train
