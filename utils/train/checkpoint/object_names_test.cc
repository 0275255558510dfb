#include "utils/train/checkpoint/object_names.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "utils/protos/object_graph.pb.h"
#include "utils/train/checkpoint/bundle.h"

namespace official::train {
namespace {

using compute::Tensor;

constexpr char kTable[] = "_CHECKPOINTABLE_OBJECT_GRAPH";

std::string KeyOf(const std::string& path) { return absl::StrCat(path, "/.ATTRIBUTES/VARIABLE_VALUE"); }

// A table in which the variable of each path has a full name.
std::string Table(const std::map<std::string, std::string>& full_names) {
  tensorflow::TrackableObjectGraph graph;
  graph.add_nodes();  // the root
  for (const auto& [path, full_name] : full_names) {
    auto* const attribute = graph.add_nodes()->add_attributes();
    attribute->set_name("VARIABLE_VALUE");
    attribute->set_full_name(full_name);
    attribute->set_checkpoint_key(KeyOf(path));
  }
  return graph.SerializeAsString();
}

// A checkpoint whose variables, scalars, are numbered in the order of the keys; with a table of names, if any.
std::unique_ptr<TensorReader> Written(const std::vector<std::string>& keys, const std::vector<std::string>& table) {
  const std::string prefix = absl::StrCat(std::getenv("TEST_TMPDIR"), "/objects");
  const auto writer = BundleWriter::Create(prefix).value();
  if (!table.empty()) REQUIRE(writer->AddStrings(kTable, compute::Shape({}), table).ok());
  for (size_t i = 0; i < keys.size(); ++i) {
    REQUIRE(writer->Add(keys[i], Tensor::Scalar<int64_t>(static_cast<int64_t>(i))).ok());
  }
  REQUIRE(writer->Finish().ok());
  return BundleReader::Open(prefix).value();
}

// Name to value, as listed.
std::map<std::string, int64_t> Values(const TensorReader& reader) {
  std::map<std::string, int64_t> values;
  for (const StoredTensor& tensor : reader.ListTensors()) {
    CHECK(reader.Verify(tensor.name).ok());
    CHECK(reader.Find(tensor.name)->name == tensor.name);
    values[tensor.name] = reader.Read(tensor.name)->scalar<int64_t>();
  }
  return values;
}

TEST_CASE("Variables of an object-based checkpoint have the names that they had in the program") {
  const std::vector<std::string> keys = {KeyOf("layer-0/bias"), KeyOf("layer-0/kernel"), KeyOf("step")};
  const std::string table =
      Table({{"layer-0/bias", "dense/bias"}, {"layer-0/kernel", "dense/kernel"}, {"step", "global_step"}});
  const auto reader = WithVariableNames(Written(keys, {table})).value();
  CHECK(Values(*reader) == std::map<std::string, int64_t>{{"dense/bias", 0}, {"dense/kernel", 1}, {"global_step", 2}});
  CHECK(reader->Read(keys[1])->scalar<int64_t>() == 1);  // by its key, too
  CHECK(reader->Read("dense/other").status().code() == absl::StatusCode::kNotFound);
}

TEST_CASE("Where names are missing or not unique, the path of the object is the name") {
  const std::vector<std::string> keys = {KeyOf("a/kernel"), KeyOf("b/kernel"), KeyOf("c"), KeyOf("d"), "other"};
  const std::string table = Table({{"a/kernel", "kernel"}, {"b/kernel", "kernel"}, {"c", ""}, {"not there", "c"}});
  CHECK(Values(**WithVariableNames(Written(keys, {table}))) ==
        std::map<std::string, int64_t>{{"a/kernel", 0}, {"b/kernel", 1}, {"c", 2}, {"d", 3}, {"other", 4}});
  // b's path is a's name.
  const std::string crossed = Table({{"a/kernel", "b/kernel"}});
  CHECK(Values(**WithVariableNames(Written({KeyOf("a/kernel"), KeyOf("b/kernel")}, {crossed}))) ==
        std::map<std::string, int64_t>{{"b/kernel", 0}, {KeyOf("b/kernel"), 1}});
}

TEST_CASE("Checkpoints of names stay as they are, and a table that is damaged is an error") {
  CHECK(Values(**WithVariableNames(Written({"dense/kernel"}, {}))) ==
        std::map<std::string, int64_t>{{"dense/kernel", 0}});
  const auto damaged = WithVariableNames(Written({KeyOf("a")}, {"\xff\xff"}));
  CHECK(damaged.status().code() == absl::StatusCode::kDataLoss);
  CHECK(damaged.status().message() == "the tensor _CHECKPOINTABLE_OBJECT_GRAPH is not a table of objects");
}

}  // namespace
}  // namespace official::train
