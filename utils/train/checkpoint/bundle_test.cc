#include "utils/train/checkpoint/bundle.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "utils/files/crc32c.h"
#include "utils/files/files.h"
#include "utils/logs/captured_log.h"
#include "utils/protos/bundle.pb.h"
#include "utils/train/checkpoint/test_table.h"

namespace official::train {
namespace {

using Catch::Matchers::Contains;
using compute::DType;
using compute::Shape;
using compute::Tensor;
using EntryProto = tensorflow::BundleEntryProto;

std::string NewPrefix() {
  static int counter = 0;
  const char* directory = std::getenv("TEST_TMPDIR");
  return absl::StrCat(directory ? directory : "/tmp", "/bundle-", ++counter);
}

std::string Hex(absl::string_view hex) { return absl::HexStringToBytes(absl::StrReplaceAll(hex, {{" ", ""}})); }

std::string FileBytes(const std::string& path) { return files::ReadFile(path, 1 << 24).value(); }

std::string DataPath(const std::string& prefix) { return prefix + ".data-00000-of-00001"; }

std::string Message(const absl::Status& status) { return std::string(status.message()); }

std::string WriteBundle(const std::map<std::string, Tensor>& tensors) {
  const std::string prefix = NewPrefix();
  auto writer = BundleWriter::Create(prefix).value();
  for (const auto& [name, tensor] : tensors) REQUIRE(writer->Add(name, tensor).ok());
  REQUIRE(writer->Finish().ok());
  return prefix;
}

template <typename T>
std::vector<T> Values(const Tensor& tensor) {
  return std::vector<T>(tensor.flat<T>().begin(), tensor.flat<T>().end());
}

// The files that TensorFlow's Saver writes for dense/bias = [1, 2], dense/kernel = [[3, 4]], global_step = 7.
const std::string kExampleData = Hex("0000803f 00000040 00004040 00008040 0700000000000000");
const std::string kExampleIndex = Hex("000006 08011a020801") +                                             // header
                                  Hex("000a0f") + "dense/bias" + Hex("080112041202080228083559 3ce535") +  //
                                  Hex("060615") + "kernel" + Hex("0801120812020801120208022008280835620a976b") +  //
                                  Hex("000b0d") + "global_step" + Hex("0809120020102808 35bbd79f11") +            //
                                  Hex("00000000 01000000 00 f266f3dc") +  // restarts, type, checksum
                                  Hex("00000000 01000000 00 c0f2a1b0") +  // metaindex
                                  Hex("000102") + "h" + Hex("0066") + Hex("00000000 01000000 00 f6151ba7") +  // index
                                  Hex("6b08 780e") + std::string(36, '\0') + Hex("57fb808b247547db");

std::map<std::string, Tensor> ExampleTensors() {
  return {{"dense/bias", Tensor::Of<float>({2}, {1, 2})},
          {"dense/kernel", Tensor::Of<float>({1, 2}, {3, 4})},
          {"global_step", Tensor::Scalar<int64_t>(7)}};
}

std::string WriteFiles(const std::string& index, const std::string& data) {
  const std::string prefix = NewPrefix();
  REQUIRE(files::WriteFileAtomically(prefix + ".index", index).ok());
  REQUIRE(files::WriteFileAtomically(DataPath(prefix), data).ok());
  return prefix;
}

// A bundle of one shard of any entries, also false ones.
std::string WriteEntries(const std::map<std::string, EntryProto>& entries, const std::string& data,
                         int num_shards = 1) {
  std::map<std::string, std::string> table;
  tensorflow::BundleHeaderProto header;
  header.set_num_shards(num_shards);
  table[""] = header.SerializeAsString();
  for (const auto& [key, entry] : entries) table[key] = entry.SerializeAsString();
  return WriteFiles(test_table::Table(table), data);
}

EntryProto MakeEntry(tensorflow::DataType dtype, const std::vector<int64_t>& dims, int64_t offset,
                     absl::string_view bytes) {
  EntryProto entry;
  entry.set_dtype(dtype);
  for (int64_t size : dims) entry.mutable_shape()->add_dim()->set_size(size);
  entry.set_offset(offset);
  entry.set_size(bytes.size());
  entry.set_crc32c(files::MaskCrc(files::Crc32c(bytes)));
  return entry;
}

std::string FloatBytes(const std::vector<float>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
}

// What the temporary files beside a bundle are to be called.
std::vector<std::string> Temporaries(const std::string& prefix) {
  std::vector<std::string> found;
  const std::vector<std::string> names = files::ListDirectory(files::DirectoryOf(prefix)).value();
  for (const std::string& name : names) {
    const auto path = files::FinalNameOf(files::JoinPath(files::DirectoryOf(prefix), name));
    if (path && (*path == prefix + ".index" || *path == DataPath(prefix))) found.push_back(*path);
  }
  return found;
}

void CheckRefused(const std::string& prefix, const std::string& why) {
  const absl::Status status = BundleReader::Open(prefix).status();
  CHECK(absl::IsDataLoss(status));
  CHECK_THAT(Message(status), Contains(prefix) && Contains(why));
}

TEST_CASE("A bundle has TensorFlow's bytes") {
  const std::string prefix = WriteBundle(ExampleTensors());
  CHECK(absl::BytesToHexString(FileBytes(DataPath(prefix))) == absl::BytesToHexString(kExampleData));
  CHECK(absl::BytesToHexString(FileBytes(prefix + ".index")) == absl::BytesToHexString(kExampleIndex));
  CHECK(Temporaries(prefix).empty());
}

TEST_CASE("A bundle of TensorFlow is read") {
  const auto reader = BundleReader::Open(WriteFiles(kExampleIndex, kExampleData)).value();
  CHECK(reader->VerifyChecksums().ok());
  const std::vector<StoredTensor> tensors = reader->ListTensors();
  REQUIRE(tensors.size() == 3);
  CHECK(tensors[1].name == "dense/kernel");
  CHECK(tensors[1].dtype == DType::kFloat32);
  CHECK(tensors[1].shape == Shape({1, 2}));
  CHECK(Values<float>(reader->Read("dense/bias").value()) == std::vector<float>{1, 2});
  CHECK(Values<float>(reader->Read("dense/kernel").value()) == std::vector<float>{3, 4});
  CHECK(reader->Read("global_step").value().scalar<int64_t>() == 7);
  CHECK(absl::IsNotFound(reader->Read("dense").status()));
  CHECK_FALSE(reader->Find("dense").has_value());
}

TEST_CASE("Every type comes back, and tensors without elements or dimensions") {
  std::map<std::string, Tensor> tensors;
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64, DType::kInt32,
                            DType::kInt64, DType::kUInt8, DType::kBool}) {
    Tensor tensor(dtype, {3, 2});
    for (int64_t i = 0; i < tensor.num_bytes(); ++i) static_cast<uint8_t*>(tensor.raw_data())[i] = i % 2;
    tensors[absl::StrCat("t/", compute::DTypeName(dtype))] = tensor;
  }
  tensors["empty"] = Tensor(DType::kFloat32, {0, 5});
  tensors["scalar"] = Tensor::Scalar<float>(2.5f);
  const auto reader = BundleReader::Open(WriteBundle(tensors)).value();
  REQUIRE(reader->VerifyChecksums().ok());
  CHECK(reader->ListTensors().size() == tensors.size());
  for (const auto& [name, tensor] : tensors) {
    INFO(name);
    const Tensor read = reader->Read(name).value();
    CHECK(read.type() == tensor.type());
    CHECK(std::memcmp(read.raw_data(), tensor.raw_data(), tensor.num_bytes()) == 0);
  }
}

TEST_CASE("An index of many blocks is read") {
  std::map<std::string, Tensor> tensors;
  for (int i = 0; i < 20000; ++i) tensors[absl::StrCat("layer_", i, "/kernel")] = Tensor::Scalar<int32_t>(i);
  const std::string prefix = WriteBundle(tensors);
  CHECK(FileBytes(prefix + ".index").size() > 2 * 262144);
  const auto reader = BundleReader::Open(prefix).value();
  CHECK(reader->ListTensors().size() == 20000);
  CHECK(reader->Read("layer_19999/kernel").value().scalar<int32_t>() == 19999);
  CHECK(reader->VerifyChecksums().ok());
}

TEST_CASE("Strings have TensorFlow's bytes and come back") {
  const std::string prefix = NewPrefix();
  const std::vector<std::string> values = {"a", "", std::string(300, 'x')};
  {
    auto writer = BundleWriter::Create(prefix).value();
    REQUIRE(writer->AddStrings("scalar", {}, {"hello"}).ok());
    REQUIRE(writer->AddStrings("several", {3}, values).ok());
    REQUIRE(writer->Finish().ok());
  }
  // Written by SaveV2 of TensorFlow 2.15: lengths (varints), their masked checksum, text.
  CHECK(absl::BytesToHexString(FileBytes(DataPath(prefix)).substr(0, 20)) ==
        "05d9c69c4368656c6c6f"
        "0100ac02ffb49e0d6178");
  CHECK(
      absl::BytesToHexString(FileBytes(prefix + ".index").substr(0, 69)) ==
      "00000608011a02080100060b7363616c617208071200280a35ece0c02901061265766572616c0807120412020803200a28b502356b192857"
      "000000000100000000f9fbd1e8");
  const auto reader = BundleReader::Open(prefix).value();
  CHECK(reader->VerifyChecksums().ok());
  CHECK(reader->ReadStrings("scalar").value() == std::vector<std::string>{"hello"});
  CHECK(reader->ReadStrings("several").value() == values);
  CHECK_FALSE(reader->Find("several")->dtype.has_value());
  CHECK(reader->Find("several")->dtype_name == "string");
  CHECK(absl::IsUnimplemented(reader->Read("scalar").status()));
  CHECK(absl::IsNotFound(reader->ReadStrings("none").status()));
}

TEST_CASE("A writer that does not finish leaves no files") {
  const std::string prefix = WriteBundle(ExampleTensors());
  {
    auto writer = BundleWriter::Create(prefix).value();
    REQUIRE(writer->Add("other", Tensor::Scalar<float>(1)).ok());
  }
  CHECK(Temporaries(prefix).empty());
  CHECK(BundleReader::Open(prefix).value()->VerifyChecksums().ok());
}

TEST_CASE("If the index cannot get its name, it is kept next to its data") {
  const std::string prefix = NewPrefix();
  REQUIRE(files::MakeDirectories(prefix + ".index/in the way").ok());
  auto writer = BundleWriter::Create(prefix).value();
  REQUIRE(writer->Add("a", Tensor::Scalar<float>(1)).ok());
  CHECK_FALSE(writer->Finish().ok());
  writer.reset();
  CHECK(Temporaries(prefix) == std::vector<std::string>{prefix + ".index"});
  CHECK(files::Exists(DataPath(prefix)));
}

// ---- Slices ----

// Partitioned `w` of shape [5, 2] in rows 0..2 and 3..4, keys and entry as TensorFlow 1.x writes them.
const std::string kRows0To2Key = Hex("00 77 0001 0102 80 83 80 82");
const std::string kRows3To4Key = Hex("00 77 0001 0102 83 82 80 82");

std::map<std::string, EntryProto> SlicedEntries() {
  std::map<std::string, EntryProto> entries;
  REQUIRE(entries["w"].ParseFromString(Hex("0801 12081202080512020802 3a080a0210030a021002 3a0a0a04080310020a021002")));
  entries[kRows0To2Key] = MakeEntry(tensorflow::DT_FLOAT, {3, 2}, 0, FloatBytes({0, 1, 2, 3, 4, 5}));
  entries[kRows3To4Key] = MakeEntry(tensorflow::DT_FLOAT, {2, 2}, 24, FloatBytes({6, 7, 8, 9}));
  return entries;
}

const std::string kSlicedData = FloatBytes({0, 1, 2, 3, 4, 5, 6, 7, 8, 9});

TEST_CASE("A variable saved in slices is one tensor") {
  const auto reader = BundleReader::Open(WriteEntries(SlicedEntries(), kSlicedData)).value();
  CHECK(reader->Find("w")->num_bytes == 40);
  CHECK(reader->Find("w")->file.empty());
  CHECK(reader->Verify("w").ok());
  REQUIRE(reader->ListTensors().size() == 1);
  CHECK(reader->Find("w")->shape == Shape({5, 2}));
  CHECK(Values<float>(reader->Read("w").value()) == std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  CHECK(reader->VerifyChecksums().ok());
}

TEST_CASE("Slices may cut any dimensions and leave dimensions whole") {
  // `w` of shape [2, 3, 2]: columns 0..1 of dimension 1 whole in dimension 0 (length -1), then column 2 in two pieces.
  EntryProto whole = MakeEntry(tensorflow::DT_FLOAT, {2, 3, 2}, 0, "");
  whole.clear_size();
  const auto add_slice = [&](const std::vector<std::pair<int, int>>& extents) {
    auto* slice = whole.add_slices();
    for (const auto& [start, length] : extents) {
      auto* extent = slice->add_extent();
      if (length < 0) continue;
      extent->set_start(start);
      extent->set_length(length);
    }
  };
  add_slice({{0, -1}, {0, 2}, {0, -1}});
  add_slice({{0, 1}, {2, 1}, {0, 2}});
  add_slice({{1, 1}, {2, 1}, {0, 2}});
  const std::string key = Hex("00 77 0001 0103");
  std::map<std::string, EntryProto> entries = {
      {"w", whole},
      {key + Hex("80 7f 80 82 80 7f"),
       MakeEntry(tensorflow::DT_FLOAT, {2, 2, 2}, 0, FloatBytes({0, 1, 2, 3, 6, 7, 8, 9}))},
      {key + Hex("80 81 82 81 80 82"), MakeEntry(tensorflow::DT_FLOAT, {1, 1, 2}, 32, FloatBytes({4, 5}))},
      {key + Hex("81 81 82 81 80 82"), MakeEntry(tensorflow::DT_FLOAT, {1, 1, 2}, 40, FloatBytes({10, 11}))}};
  const std::string data = FloatBytes({0, 1, 2, 3, 6, 7, 8, 9, 4, 5, 10, 11});
  const auto reader = BundleReader::Open(WriteEntries(entries, data)).value();
  CHECK(Values<float>(reader->Read("w").value()) == std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
}

TEST_CASE("Keys of slices hold numbers of any size") {
  // start 8192 (e0 20 00), length 63 (bf), in a variable whose name has bytes that must be escaped.
  const std::string name("a\0b\xff", 4);
  EntryProto whole = MakeEntry(tensorflow::DT_UINT8, {8255}, 0, "");
  whole.clear_size();
  for (const auto& [start, length] : {std::pair(0, 8192), std::pair(8192, 63)}) {
    auto* extent = whole.add_slices()->add_extent();
    extent->set_start(start);
    extent->set_length(length);
  }
  const std::string key = Hex("00 61 00ff 62 ff00 0001 0101");
  const std::string data(8255, '\x07');
  const std::map<std::string, EntryProto> entries = {
      {name, whole},
      {key + Hex("80 e02000"), MakeEntry(tensorflow::DT_UINT8, {8192}, 0, data.substr(0, 8192))},
      {key + Hex("e02000 bf"), MakeEntry(tensorflow::DT_UINT8, {63}, 8192, data.substr(8192))}};
  const auto reader = BundleReader::Open(WriteEntries(entries, data)).value();
  CHECK(Values<uint8_t>(reader->Read(name).value()) == std::vector<uint8_t>(8255, 7));
}

TEST_CASE("Slices that are missing, overlap or do not fit are refused") {
  const auto refused = [](const std::function<void(std::map<std::string, EntryProto>&)>& change,
                          const std::string& why) {
    auto entries = SlicedEntries();
    change(entries);
    CheckRefused(WriteEntries(entries, kSlicedData), "tensor \"w\" " + why);
  };
  refused([](auto& entries) { entries.erase(kRows3To4Key); }, "is missing one of its slices");
  refused([](auto& entries) { entries["w"].mutable_slices()->RemoveLast(); }, "is not covered by its slices");
  refused([](auto& entries) { *entries["w"].add_slices() = entries["w"].slices(0); }, "has slices that overlap");
  refused([](auto& entries) { entries["w"].mutable_slices(0)->mutable_extent()->RemoveLast(); },
          "has a slice of another rank");
  refused([](auto& entries) { entries[kRows0To2Key].set_dtype(tensorflow::DT_INT32); }, "has a slice of another type");
  refused([](auto& entries) { entries["w"].mutable_shape()->mutable_dim(0)->set_size(4); },
          "has a slice that does not fit");
  refused([](auto& entries) { entries["w"].mutable_shape()->mutable_dim(1)->set_size(int64_t{1} << 50); },
          "is not covered");
}

// ---- Several shards, damage, hostile files ----

TEST_CASE("Tensors lie in several data files") {
  const std::string bytes = FloatBytes({1, 2});
  EntryProto second = MakeEntry(tensorflow::DT_FLOAT, {2}, 0, bytes);
  second.set_shard_id(1);
  const std::string prefix =
      WriteEntries({{"a", MakeEntry(tensorflow::DT_FLOAT, {2}, 0, bytes)}, {"b", second}}, "", /*num_shards=*/2);
  CHECK_THAT(Message(BundleReader::Open(prefix).status()), Contains("data-00000-of-00002: No such file"));
  CHECK(absl::IsNotFound(BundleReader::Open(prefix).status()));
  REQUIRE(files::WriteFileAtomically(prefix + ".data-00000-of-00002", bytes).ok());
  REQUIRE(files::WriteFileAtomically(prefix + ".data-00001-of-00002", bytes).ok());
  const auto reader = BundleReader::Open(prefix).value();
  CHECK(Values<float>(reader->Read("b").value()) == std::vector<float>{1, 2});
}

TEST_CASE("A changed byte of the data is found") {
  std::string data = kExampleData;
  data[9] ^= 1;
  const std::string prefix = WriteFiles(kExampleIndex, data);
  const auto reader = BundleReader::Open(prefix).value();
  CHECK(reader->Read("dense/bias").ok());
  for (const absl::Status& status : {reader->Read("dense/kernel").status(), reader->VerifyChecksums()}) {
    CHECK(absl::IsDataLoss(status));
    CHECK_THAT(Message(status),
               Contains(DataPath(prefix) +
                        ": tensor \"dense/kernel\", 8 bytes at offset 8: Checksum does not match: stored 6b970a62"));
  }
}

TEST_CASE("A changed byte is also found in types that are not read") {
  // A TensorList of 3 elements that SaveV2 of TensorFlow has written, and int4s, a byte each.
  const std::string variant = Hex("2d 0a16") + "tensorflow::TensorList" +
                              Hex("1213 0300010201 ffffffffffffffffff01 12020802 79de3c3d"),
                    int4s = Hex("010203");
  EntryProto entry = MakeEntry(tensorflow::DT_VARIANT, {}, 0, variant);
  entry.set_crc32c(0x0dff09d7);
  const std::map<std::string, EntryProto> entries = {
      {"int4", MakeEntry(static_cast<tensorflow::DataType>(29), {3}, variant.size(), int4s)}, {"variant", entry}};
  const std::string data = variant + int4s;
  CHECK(BundleReader::Open(WriteEntries(entries, data)).value()->VerifyChecksums().ok());
  for (size_t i = 0; i < data.size(); ++i) {
    CAPTURE(i);
    std::string changed = data;
    changed[i] ^= 1;
    const auto reader = BundleReader::Open(WriteEntries(entries, changed)).value();
    CHECK(absl::IsDataLoss(reader->Verify(i < variant.size() ? "variant" : "int4")));
    CHECK(absl::IsDataLoss(reader->VerifyChecksums()));
  }
  EntryProto cut = MakeEntry(tensorflow::DT_VARIANT, {2}, 0, variant);
  CHECK_THAT(Message(BundleReader::Open(WriteEntries({{"v", cut}}, variant)).value()->Verify("v")),
             Contains("damaged variants"));
}

TEST_CASE("How much of a checkpoint is verified is shown") {
  const std::string prefix = WriteFiles(kExampleIndex, kExampleData);
  const auto reader = BundleReader::Open(prefix).value();
  logs::CapturedTasks log;
  CHECK(reader->VerifyChecksums().ok());
  CHECK_THAT(log.Text(), Contains(absl::StrCat("verifying ", prefix.substr(prefix.rfind('/') + 1), " 100% [")));
}

TEST_CASE("Tensors are verified one by one, and have a place in a file") {
  std::string data = kExampleData;
  data[9] ^= 1;
  const std::string prefix = WriteFiles(kExampleIndex, data);
  const auto reader = BundleReader::Open(prefix).value();
  CHECK(reader->Verify("dense/bias").ok());
  CHECK(absl::IsDataLoss(reader->Verify("dense/kernel")));
  CHECK(reader->Verify("global_step").ok());
  CHECK(absl::IsNotFound(reader->Verify("none")));
  const StoredTensor step = *reader->Find("global_step");
  CHECK((step.num_bytes == 8 && step.offset == 16 && step.file == DataPath(prefix)));
}

TEST_CASE("There may be zeros behind tensors, also the last, as TensorFlow leaves where it aligns them") {
  const std::string one = FloatBytes({1}), two = FloatBytes({2});
  const auto prefix_with = [&](const std::string& behind) {
    return WriteEntries(
        {{"a", MakeEntry(tensorflow::DT_FLOAT, {}, 0, one)}, {"b", MakeEntry(tensorflow::DT_FLOAT, {}, 64, two)}},
        one + std::string(60, '\0') + two + behind);
  };
  for (const int num_zeros : {0, 60, 4095}) {
    CAPTURE(num_zeros);
    const auto reader = BundleReader::Open(prefix_with(std::string(num_zeros, '\0')));
    REQUIRE(reader.ok());
    CHECK((*reader)->VerifyChecksums().ok());
    CHECK((*reader)->Read("b").value().scalar<float>() == 2);
  }
  CheckRefused(prefix_with(std::string(4096, '\0')), "holds 4164 bytes, but its tensors end at byte 68");
  CheckRefused(prefix_with(std::string(59, '\0') + "x"), "holds 128 bytes, but its tensors end at byte 68");
}

TEST_CASE("Cut and missing files are reported") {
  CheckRefused(WriteFiles(kExampleIndex, kExampleData.substr(0, 23)),
               "tensor \"global_step\" has 8 bytes at offset 16 of");
  CheckRefused(WriteFiles(kExampleIndex, kExampleData + "x"),
               ".data-00000-of-00001 holds 25 bytes, but its tensors end at byte 24");
  CheckRefused(WriteFiles(kExampleIndex.substr(1), kExampleData), "checksum");
  CheckRefused(WriteFiles("", kExampleData), "holds 0 bytes");
  CHECK(absl::IsNotFound(BundleReader::Open(NewPrefix()).status()));
}

TEST_CASE("Entries that cannot be true are refused before anything is allocated") {
  const auto refused = [](const EntryProto& entry, const std::string& why) {
    CheckRefused(WriteEntries({{"t", entry}}, std::string(16, '\0')), why);
  };
  const std::string four(4, '\0');
  refused(MakeEntry(tensorflow::DT_FLOAT, {-1}, 0, four), "has an impossible shape");
  refused(MakeEntry(tensorflow::DT_FLOAT, {int64_t{1} << 40, int64_t{1} << 40}, 0, four), "has an impossible shape");
  refused(MakeEntry(tensorflow::DT_FLOAT, {0, int64_t{1} << 62, int64_t{1} << 62}, 0, ""), "has an impossible shape");
  refused(MakeEntry(tensorflow::DT_FLOAT, std::vector<int64_t>(255, 1), 0, four), "has an impossible shape");
  refused(MakeEntry(tensorflow::DT_FLOAT, {int64_t{1} << 50}, 0, four), "is float32[1125899906842624], which needs");
  refused(MakeEntry(tensorflow::DT_FLOAT, {3}, 0, four), "which needs 12 bytes, but 4 are stored");
  refused(MakeEntry(tensorflow::DT_FLOAT, {}, 13, four), "has 4 bytes at offset 13");
  refused(MakeEntry(tensorflow::DT_FLOAT, {}, -4, four), "has 4 bytes at offset -4");
  refused(MakeEntry(tensorflow::DT_FLOAT, {}, INT64_MAX, four), "has 4 bytes at offset 9223372036854775807");
  EntryProto entry = MakeEntry(tensorflow::DT_FLOAT, {}, 0, four);
  entry.mutable_shape()->set_unknown_rank(true);
  refused(entry, "has an impossible shape");
  entry = MakeEntry(tensorflow::DT_STRING, {}, 0, "");
  entry.set_size(-1);
  refused(entry, "has -1 bytes");
  entry = MakeEntry(tensorflow::DT_FLOAT, {}, 0, four);
  entry.set_shard_id(1);
  refused(entry, "is in data file 1 of 1");
  entry.set_shard_id(-1);
  refused(entry, "is in data file -1 of 1");
}

TEST_CASE("Tensors may not share bytes: a small file would hold endless ones") {
  const EntryProto entry = MakeEntry(tensorflow::DT_FLOAT, {3}, 0, std::string(12, '\0'));
  CheckRefused(WriteEntries({{"a", entry}, {"b", entry}}, std::string(16, '\0')), "\"b\" shares bytes");
}

TEST_CASE("Damaged strings are refused") {
  const auto verify = [](const std::string& bytes, const std::vector<int64_t>& dims) {
    const std::string prefix = WriteEntries({{"s", MakeEntry(tensorflow::DT_STRING, dims, 0, bytes)}}, bytes);
    return BundleReader::Open(prefix).value()->ReadStrings("s").status();
  };
  CHECK_THAT(Message(verify(Hex("05d9c69c4368656c6c"), {})), Contains("damaged strings"));    // too short
  CHECK_THAT(Message(verify(Hex("05c9c69c4368656c6c6f"), {})), Contains("damaged strings"));  // lengths' checksum
  CHECK_THAT(Message(verify(Hex("ffffffffffffffffff01"), {})), Contains("damaged strings"));
  CHECK_THAT(Message(verify("", {int64_t{1} << 50})), Contains("damaged strings"));
  CHECK_THAT(Message(verify(Hex("05d9c69c4368656c6c6f"), {})), Contains("Checksum does not match"));  // of the varint
}

TEST_CASE("What exceeds a limit of the reader is Unimplemented, not damage") {
  EntryProto sliced = MakeEntry(tensorflow::DT_FLOAT, {1025}, 0, "");
  for (int i = 0; i < 1025; ++i) sliced.add_slices()->add_extent();
  const absl::Status slices = BundleReader::Open(WriteEntries({{"w", sliced}}, "")).status();
  CHECK(absl::IsUnimplemented(slices));
  CHECK_THAT(Message(slices), Contains("tensor \"w\" is saved in 1025 slices; at most 1024 can be read"));

  EntryProto sliced_strings = MakeEntry(tensorflow::DT_STRING, {1}, 0, "");  // in one slice, [0, 1)
  sliced_strings.clear_size();
  sliced_strings.add_slices()->add_extent()->set_length(1);
  const std::string bytes = Hex("05d9c69c4368656c6c6f"), key = Hex("00 73 0001 0101 80 81");
  const std::string sliced_prefix =
      WriteEntries({{"s", sliced_strings}, {key, MakeEntry(tensorflow::DT_STRING, {1}, 0, bytes)}}, bytes);
  const absl::Status strings = BundleReader::Open(sliced_prefix).value()->ReadStrings("s").status();
  CHECK(absl::IsUnimplemented(strings));
  CHECK_THAT(Message(strings), Contains("tensor \"s\" is a string tensor saved in slices"));

  EntryProto long_strings = MakeEntry(tensorflow::DT_STRING, {}, 0, "");
  long_strings.set_size((64 << 20) + 1);
  const std::string prefix = WriteEntries({{"s", long_strings}}, "");
  std::filesystem::resize_file(DataPath(prefix), long_strings.size());
  const auto reader = BundleReader::Open(prefix).value();
  for (const absl::Status& status : {reader->ReadStrings("s").status(), reader->Verify("s")}) {
    CHECK(absl::IsUnimplemented(status));
    CHECK_THAT(Message(status), Contains("tensor \"s\" has 67108865 bytes of strings; at most 67108864 can be read"));
  }
}

TEST_CASE("As many strings of a tensor are read as fit in memory, and more are verified") {
  const std::string prefix = NewPrefix();
  constexpr size_t kMost = 1 << 20;
  {
    auto writer = BundleWriter::Create(prefix).value();
    REQUIRE(writer->AddStrings("most", {kMost}, std::vector<std::string>(kMost)).ok());
    REQUIRE(writer->AddStrings("more", {kMost + 1}, std::vector<std::string>(kMost + 1)).ok());
    REQUIRE(writer->Finish().ok());
  }
  const auto reader = BundleReader::Open(prefix).value();
  CHECK(reader->VerifyChecksums().ok());
  CHECK(reader->ReadStrings("most").value().size() == kMost);
  const absl::Status status = reader->ReadStrings("more").status();
  CHECK(absl::IsUnimplemented(status));
  CHECK_THAT(Message(status), Contains("tensor \"more\" has 1048577 strings; at most 1048576 can be read"));
}

TEST_CASE("Other headers, other types and bools that are neither are refused") {
  tensorflow::BundleHeaderProto header;
  header.set_num_shards(1);
  header.set_endianness(tensorflow::BundleHeaderProto::BIG);
  CheckRefused(WriteFiles(test_table::Table({{"", header.SerializeAsString()}}), ""), "big-endian");
  header.clear_endianness();
  header.mutable_version()->set_min_consumer(2);
  CheckRefused(WriteFiles(test_table::Table({{"", header.SerializeAsString()}}), ""), "version 2");
  CheckRefused(WriteFiles(test_table::Table({{"", "\xff"}}), ""), "damaged header entry");
  CheckRefused(WriteFiles(test_table::Table({{"a", "\xff"}}), ""), "damaged entry");
  CheckRefused(WriteFiles(test_table::Table(std::map<std::string, std::string>{}), ""), "no header entry");

  const std::string two = "\x02";
  const std::string prefix = WriteEntries(
      {{"bool", MakeEntry(tensorflow::DT_BOOL, {}, 0, two)}, {"int8", MakeEntry(tensorflow::DT_INT8, {1}, 1, two)}},
      two + two);
  const auto reader = BundleReader::Open(prefix).value();
  CHECK_THAT(Message(reader->Read("bool").status()), Contains("other than 0 and 1"));
  CHECK_THAT(Message(reader->Read("int8").status()), Contains("is of type int8, which is not supported"));
}

TEST_CASE("A bundle that cannot be written says where and why") {
  CHECK(absl::IsFailedPrecondition(BundleWriter::Create("/proc/none/model.ckpt-1").status()));
}

}  // namespace
}  // namespace official::train
