#include "utils/train/checkpoint/object_names.h"

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "utils/compute/core/status.h"
#include "utils/protos/object_graph.pb.h"

namespace official::train {
namespace {

// TensorFlow's names (tensorflow/python/trackable/base.py, tensorflow/python/checkpoint/checkpoint.py).
constexpr char kObjectGraph[] = "_CHECKPOINTABLE_OBJECT_GRAPH";
constexpr char kVariable[] = "VARIABLE_VALUE";
constexpr char kVariableSuffix[] = "/.ATTRIBUTES/VARIABLE_VALUE";

// Name to key, of all tensors but the table of names.
using Keys = std::map<std::string, std::string>;

class ObjectBasedReader final : public TensorReader {
 public:
  ObjectBasedReader(std::unique_ptr<TensorReader> reader, Keys keys)
      : reader_(std::move(reader)), keys_(std::move(keys)) {}

  std::vector<StoredTensor> ListTensors() const override {
    std::vector<StoredTensor> tensors;
    for (const auto& [name, key] : keys_) tensors.push_back(*Find(name));
    return tensors;
  }
  std::optional<StoredTensor> Find(const std::string& name) const override {
    std::optional<StoredTensor> found = reader_->Find(KeyOf(name));
    if (found) found->name = name;
    return found;
  }
  absl::StatusOr<compute::Tensor> Read(const std::string& name) const override { return reader_->Read(KeyOf(name)); }
  absl::StatusOr<std::vector<std::string>> ReadStrings(const std::string& name) const override {
    return reader_->ReadStrings(KeyOf(name));
  }
  absl::Status Verify(const std::string& name) const override { return reader_->Verify(KeyOf(name)); }

 private:
  // Another name is looked up as it is, so that the error is that of the reader, and keys are names, too.
  const std::string& KeyOf(const std::string& name) const {
    const auto found = keys_.find(name);
    return found == keys_.end() ? name : found->second;
  }

  const std::unique_ptr<TensorReader> reader_;
  const Keys keys_;
};

absl::StatusOr<std::map<std::string, std::string>> FullNames(const TensorReader& reader) {
  ASSIGN_OR_RETURN(const std::vector<std::string> texts, reader.ReadStrings(kObjectGraph));
  tensorflow::TrackableObjectGraph graph;
  if (texts.size() != 1 || !graph.ParseFromString(texts[0])) {
    return absl::DataLossError(absl::StrCat("the tensor ", kObjectGraph, " is not a table of objects"));
  }
  std::map<std::string, std::string> names;  // by key
  for (const auto& node : graph.nodes()) {
    for (const auto& attribute : node.attributes()) {
      if (attribute.name() == kVariable) names.emplace(attribute.checkpoint_key(), attribute.full_name());
    }
  }
  return names;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TensorReader>> WithVariableNames(std::unique_ptr<TensorReader> reader) {
  const std::optional<StoredTensor> table = reader->Find(kObjectGraph);
  if (!table || table->dtype_name != "string") return reader;
  ASSIGN_OR_RETURN(const auto full_names, FullNames(*reader));
  std::map<std::string, int> uses;  // of a full name, by tensors that are there
  const std::vector<StoredTensor> tensors = reader->ListTensors();
  const auto full_name = [&](const std::string& key) {
    const auto found = full_names.find(key);
    return found == full_names.end() ? std::string() : found->second;
  };
  for (const StoredTensor& tensor : tensors) ++uses[full_name(tensor.name)];
  Keys keys;
  std::vector<std::string> by_path;  // keys of those without a full name of their own
  for (const StoredTensor& tensor : tensors) {
    if (tensor.name == kObjectGraph) continue;
    const std::string name = full_name(tensor.name);
    if (name.empty() || uses[name] > 1) {
      by_path.push_back(tensor.name);
    } else {
      keys.emplace(name, tensor.name);
    }
  }
  for (const std::string& key : by_path) {
    // The path of one object may be the full name of another variable.
    if (!keys.emplace(absl::StripSuffix(key, kVariableSuffix), key).second) keys.emplace(key, key);
  }
  return std::make_unique<ObjectBasedReader>(std::move(reader), std::move(keys));
}

}  // namespace official::train
