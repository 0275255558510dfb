// Builds an ONNX graph node by node.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "utils/compute/core/tensor.h"
#include "utils/protos/onnx.pb.h"

namespace official::exporting {

// Values of node attributes, with their names.
onnx::AttributeProto OnnxInt(const std::string& name, int64_t value);
onnx::AttributeProto OnnxInts(const std::string& name, absl::Span<const int64_t> values);
onnx::AttributeProto OnnxFloat(const std::string& name, float value);
onnx::AttributeProto OnnxString(const std::string& name, const std::string& value);
onnx::AttributeProto OnnxTensor(const std::string& name, const compute::Tensor& value);
onnx::AttributeProto OnnxGraph(const std::string& name, onnx::GraphProto value);

onnx::TensorProto::DataType ToOnnxType(compute::DType dtype);
// Returns the inverse; nothing for types that no value of ours has.
std::optional<compute::DType> FromOnnxType(int type);

class OnnxBuilder {
 public:
  using Attrs = std::vector<onnx::AttributeProto>;
  // -1: any size, named "batch" in dimension 0, else after the value and the dimension. Without: any shape.
  using Dims = std::optional<std::vector<int64_t>>;

  // `taken` has the names of a graph and of all graphs in its nodes, which all differ; it must outlive the builder.
  OnnxBuilder(const std::string& name, std::set<std::string>& taken) : taken_(taken) { graph_.set_name(name); }

  // Each of these returns the name of the value that it adds: `name`, or name_1, name_2, ... if that is taken.
  std::string AddInput(const std::string& name, compute::DType dtype, const Dims& dims = {});
  std::string AddInitializer(const std::string& name, const compute::Tensor& value);
  // Adds a node with one output. An input "" is one that is left out.
  std::string AddNode(absl::string_view op, const std::string& name, absl::Span<const std::string> inputs,
                      Attrs attrs = {});

  // Adds a node with several outputs, and returns their names.
  std::vector<std::string> AddNodeOf(size_t num_outputs, absl::string_view op, const std::string& name,
                                     absl::Span<const std::string> inputs, Attrs attrs = {});
  // Makes a value an output of the graph under `name`, which must be in `taken` already, and not be another value's.
  void AddOutput(const std::string& name, const std::string& value, compute::DType dtype, const Dims& dims = {});
  // Returns a name that is not taken, and takes it.
  std::string Unique(const std::string& name);

  onnx::GraphProto Finish() && { return std::move(graph_); }

 private:
  std::set<std::string>& taken_;
  onnx::GraphProto graph_;
};

}  // namespace official::exporting
