#include "utils/export/onnx_graph.h"

#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/compute/ops/array/array.h"
#include "utils/compute/ops/batch_norm/batch_norm.h"
#include "utils/compute/ops/conv/conv.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/matmul/matmul.h"
#include "utils/compute/ops/pooling/pooling.h"
#include "utils/compute/ops/reduction/reduction.h"
#include "utils/compute/ops/softmax/softmax.h"
#include "utils/compute/ops/top_k/top_k.h"
#include "utils/export/onnx_builder.h"

namespace official::exporting {
namespace {

using compute::DType;
using compute::Tensor;
using compute::Value;
using Ints = std::vector<int64_t>;
using Values = std::map<std::string, Value>;
using Result = absl::StatusOr<Value>;

absl::Status NotKnown(const onnx::NodeProto& node, absl::string_view why) {
  return absl::UnimplementedError(
      absl::StrCat("the ONNX op ", node.op_type(), " (node ", node.name(), ")", why, " cannot be computed here"));
}

absl::StatusOr<Tensor> TensorOf(const onnx::TensorProto& proto) {
  const std::optional<DType> dtype = FromOnnxType(proto.data_type());
  if (!dtype) return absl::UnimplementedError(absl::StrCat("the type of the initializer ", proto.name()));
  Tensor tensor(*dtype, compute::Shape(absl::MakeConstSpan(proto.dims().data(), proto.dims().size())));
  if (static_cast<int64_t>(proto.raw_data().size()) != tensor.num_bytes()) {
    return absl::InternalError(absl::StrCat("the initializer ", proto.name(), " has not the bytes of its type"));
  }
  std::memcpy(tensor.raw_data(), proto.raw_data().data(), proto.raw_data().size());
  return tensor;
}

// A node with its inputs. Attributes that are left out have the values that ONNX gives them.
struct Node {
  const onnx::NodeProto& proto;
  std::vector<Value> inputs;
  const std::map<std::string, Tensor>& initializers;

  const onnx::AttributeProto* Find(absl::string_view name) const {
    for (const onnx::AttributeProto& attr : proto.attribute()) {
      if (attr.name() == name) return &attr;
    }
    return nullptr;
  }
  int64_t Int(absl::string_view name, int64_t otherwise) const {
    const onnx::AttributeProto* const attr = Find(name);
    return attr == nullptr ? otherwise : attr->i();
  }
  Ints IntsOf(absl::string_view name, const Ints& otherwise) const {
    const onnx::AttributeProto* const attr = Find(name);
    return attr == nullptr ? otherwise : Ints(attr->ints().begin(), attr->ints().end());
  }
  int rank() const { return inputs[0].shape().rank(); }
  // True if the attribute names the last dimension of input 0.
  bool IsOfRows(int64_t axis) const { return axis == -1 || axis == rank() - 1; }
};

Value ToChannelsLast(Value images) { return compute::Transpose(images, {0, 2, 3, 1}); }
Value ToChannelsFirst(Value images) { return compute::Transpose(images, {0, 3, 1, 2}); }

// The padding of a Conv or MaxPool.
struct Place {
  compute::Padding padding = compute::Padding::kValid;
  compute::Border border = {};
};

Place PlaceOf(const Node& node) {
  const onnx::AttributeProto* const automatic = node.Find("auto_pad");
  if (automatic != nullptr && automatic->s() == "SAME_UPPER") return {compute::Padding::kSame, {}};
  const Ints pads = node.IntsOf("pads", {0, 0, 0, 0});  // before and then behind in H and W
  if (pads == Ints{0, 0, 0, 0}) return {};
  return {compute::Padding::kExplicit, {.top = pads[0], .bottom = pads[2], .left = pads[1], .right = pads[3]}};
}

compute::Size2D SizeOf(const Ints& height_width) { return {height_width[0], height_width[1]}; }

Result Conv(const Node& node) {
  const Place place = PlaceOf(node);
  const Value y = compute::Conv2D(ToChannelsLast(node.inputs[0]), compute::Transpose(node.inputs[1], {2, 3, 1, 0}),
                                  {.stride = SizeOf(node.IntsOf("strides", {1, 1})),
                                   .dilation = SizeOf(node.IntsOf("dilations", {1, 1})),
                                   .padding = place.padding,
                                   .border = place.border});
  return ToChannelsFirst(node.inputs.size() > 2 ? compute::BiasAdd(y, node.inputs[2]) : y);
}

Result MaxPool(const Node& node) {
  const Place place = PlaceOf(node);
  return ToChannelsFirst(
      compute::MaxPool(ToChannelsLast(node.inputs[0]), {.window = SizeOf(node.IntsOf("kernel_shape", {1, 1})),
                                                        .stride = SizeOf(node.IntsOf("strides", {1, 1})),
                                                        .padding = place.padding,
                                                        .border = place.border}));
}

Result BatchNormalization(const Node& node) {
  const onnx::AttributeProto* const epsilon = node.Find("epsilon");
  return ToChannelsFirst(compute::FusedBatchNormInference(ToChannelsLast(node.inputs[0]), node.inputs[1],
                                                          node.inputs[2], node.inputs[3], node.inputs[4],
                                                          epsilon == nullptr ? 1e-5 : epsilon->f()));
}

Result Gemm(const Node& node) {
  const Value product =
      compute::MatMul(node.inputs[0], node.inputs[1],
                      {.transpose_a = node.Int("transA", 0) != 0, .transpose_b = node.Int("transB", 0) != 0});
  return node.inputs.size() > 2 ? compute::Add(product, node.inputs[2]) : product;
}

Result MatMul(const Node& node) { return compute::MatMul(node.inputs[0], node.inputs[1]); }
Result Identity(const Node& node) { return node.inputs[0]; }
Result Relu(const Node& node) { return compute::Relu(node.inputs[0]); }
Result Add(const Node& node) { return compute::Add(node.inputs[0], node.inputs[1]); }
Result Mul(const Node& node) { return compute::Mul(node.inputs[0], node.inputs[1]); }

Result Softmax(const Node& node) {
  if (!node.IsOfRows(node.Int("axis", -1))) return NotKnown(node.proto, " of this axis");
  return compute::Softmax(node.inputs[0]);
}

Result ArgMax(const Node& node) {
  if (!node.IsOfRows(node.Int("axis", 0)) || node.Int("keepdims", 1) != 0) return NotKnown(node.proto, " of this axis");
  return compute::ArgMax(node.inputs[0]);
}

Result ReduceMean(const Node& node) {
  return compute::Mean(node.inputs[0], node.IntsOf("axes", {}), node.Int("keepdims", 1) != 0);
}

Result Cast(const Node& node) {
  const std::optional<DType> to = FromOnnxType(static_cast<int>(node.Int("to", 0)));
  if (!to) return NotKnown(node.proto, " to this type");
  return compute::Cast(node.inputs[0], *to);
}

Result Concat(const Node& node) { return compute::Concat(node.inputs, static_cast<int>(node.Int("axis", 0))); }

Result Gather(const Node& node) {
  if (node.Int("axis", 0) != 0) return NotKnown(node.proto, " of this axis");
  return compute::Gather(node.inputs[0], node.inputs[1]);
}

Result Reshape(const Node& node) {
  const auto dims = node.initializers.find(node.proto.input(1));
  if (dims == node.initializers.end()) return NotKnown(node.proto, " to a computed shape");
  const absl::Span<int64_t> sizes = dims->second.flat<int64_t>();
  return compute::Reshape(node.inputs[0], Ints(sizes.begin(), sizes.end()));
}

Result Transpose(const Node& node) { return compute::Transpose(node.inputs[0], node.IntsOf("perm", {})); }

using Function = Result (*)(const Node& node);

Function FunctionOf(const std::string& op) {
  static const auto* const functions = new std::map<std::string, Function>{
      {"Add", Add},
      {"ArgMax", ArgMax},
      {"BatchNormalization", BatchNormalization},
      {"Cast", Cast},
      {"Concat", Concat},
      {"Conv", Conv},
      {"Gather", Gather},
      {"Gemm", Gemm},
      {"Identity", Identity},
      {"MatMul", MatMul},
      {"MaxPool", MaxPool},
      {"Mul", Mul},
      {"ReduceMean", ReduceMean},
      {"Relu", Relu},
      {"Reshape", Reshape},
      {"Softmax", Softmax},
      {"Transpose", Transpose},
  };
  const auto found = functions->find(op);
  return found == functions->end() ? nullptr : found->second;
}

}  // namespace

absl::StatusOr<Values> AddOnnxGraph(const onnx::GraphProto& onnx, const Values& feeds, compute::Graph& graph) {
  Values values = feeds;
  std::map<std::string, Tensor> initializers;
  for (const onnx::TensorProto& initializer : onnx.initializer()) {
    ASSIGN_OR_RETURN(Tensor tensor, TensorOf(initializer));
    values[initializer.name()] = graph.Constant(tensor);
    initializers.emplace(initializer.name(), std::move(tensor));
  }
  for (const onnx::NodeProto& proto : onnx.node()) {
    const Function function = FunctionOf(proto.op_type());
    if (function == nullptr) return NotKnown(proto, "");
    Node node{proto, {}, initializers};
    for (const std::string& input : proto.input()) {
      const auto value = values.find(input);
      if (value == values.end()) return NotKnown(proto, absl::StrCat(" of an input \"", input, "\""));
      node.inputs.push_back(value->second);
    }
    ASSIGN_OR_RETURN(values[proto.output(0)], function(node));
    if (!graph.status().ok()) {
      return absl::InternalError(absl::StrCat("the node ", proto.name(), ": ", graph.status().message()));
    }
  }
  Values outputs;
  for (const onnx::ValueInfoProto& output : onnx.output()) {
    const auto value = values.find(output.name());
    if (value == values.end()) return absl::InternalError(absl::StrCat("no node makes the output ", output.name()));
    outputs.insert(*value);
  }
  return outputs;
}

}  // namespace official::exporting
