#include "utils/export/graph_converter.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/compute/graph/op_def.h"
#include "utils/compute/ops/array/array.h"
#include "utils/compute/ops/batch_norm/batch_norm.h"
#include "utils/compute/ops/conv/conv.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/matmul/matmul.h"
#include "utils/compute/ops/pooling/pooling.h"
#include "utils/compute/ops/reduction/reduction.h"
#include "utils/compute/ops/softmax/softmax.h"
#include "utils/compute/ops/top_k/top_k.h"

namespace official::exporting {
namespace {

using compute::DType;
using compute::Node;
using compute::Tensor;
using compute::Value;
namespace op = compute::op;

class Converter {
 public:
  Converter(absl::Span<const GraphFeed> feeds, GraphDefBuilder& out) : out_(out) {
    for (const GraphFeed& feed : feeds) {
      names_[feed.value] = feed.name;
      batched_.insert(feed.value.node());
    }
  }

  absl::StatusOr<std::vector<std::string>> Convert(absl::Span<const Value> fetches);

 private:
  using Result = absl::StatusOr<std::string>;
  using Function = Result (Converter::*)(const Node& node);
  static Function FunctionFor(const Node& node);

  Result Input(const Node& node) {
    return absl::InvalidArgumentError(absl::StrCat("the input ", node.name(), " of the graph is not fed"));
  }
  Result Variable(const Node& node) { return out_.AddVariable(node.name(), node.output_types()[0]); }
  Result Constant(const Node& node) { return out_.AddConst(node.name(), node.attrs().Get<Tensor>("value")); }
  // The same op of the same inputs, without attributes.
  Result Same(const Node& node) { return Add(node, node.op().name.text(), {}); }
  Result Conv2D(const Node& node);
  Result MaxPool(const Node& node);
  Result FusedBatchNorm(const Node& node);
  Result Mean(const Node& node);
  Result MatMul(const Node& node);
  Result Reshape(const Node& node);
  Result Transpose(const Node& node);
  Result Concat(const Node& node);
  Result Gather(const Node& node);
  Result Cast(const Node& node);
  Result ArgMax(const Node& node);
  Result Softmax(const Node& node);

  std::vector<std::string> InputNames(const Node& node) const {
    std::vector<std::string> names;
    for (const Value& input : node.inputs()) names.push_back(names_.at(input));
    return names;
  }
  // A node of the type of input 0.
  std::string Add(const Node& node, absl::string_view op, GraphDefBuilder::Attrs attrs) {
    return AddWith(node, op, InputNames(node), std::move(attrs));
  }
  std::string AddWith(const Node& node, absl::string_view op, const std::vector<std::string>& inputs,
                      GraphDefBuilder::Attrs attrs) {
    attrs.emplace_back("T", TypeAttr(node.input(0).dtype()));
    return out_.AddNode(op, node.name(), inputs, attrs);
  }
  // A constant that is a parameter of the node: int32 of the shape [values], or of `shape`.
  std::string IntsConst(const Node& node, absl::string_view part, absl::Span<const int64_t> values) {
    return IntsConst(node, part, {static_cast<int64_t>(values.size())}, values);
  }
  std::string IntsConst(const Node& node, absl::string_view part, compute::Shape shape,
                        absl::Span<const int64_t> values) {
    const std::vector<int32_t> narrow(values.begin(), values.end());
    return out_.AddConst(absl::StrCat(node.name(), "/", part), Tensor::Of<int32_t>(std::move(shape), narrow));
  }

  bool IsBatched(const Value& value) const { return batched_.contains(value.node()); }
  static absl::Status NotConverted(const Node& node, absl::string_view why) {
    return absl::UnimplementedError(
        absl::StrCat("the op ", node.op().name.text(), " (node ", node.name(), ") cannot be exported", why));
  }
  static absl::Status MovesBatch(const Node& node) {
    return NotConverted(node, ": it does not keep the batch in dimension 0");
  }

  GraphDefBuilder& out_;
  absl::flat_hash_map<Value, std::string> names_;
  absl::flat_hash_set<const Node*> batched_;  // depend on a feed
};

// For windows: TensorFlow's numbers have one for each of N, H, W, C.
tensorflow::AttrValue PerImageAxis(const std::vector<int64_t>& height_width) {
  return IntsAttr({1, height_width[0], height_width[1], 1});
}

Converter::Result Converter::Conv2D(const Node& node) {
  namespace conv2d = compute::conv2d;
  std::vector<std::string> inputs = InputNames(node);
  std::string padding = node.attrs().Get<std::string>("padding");
  if (padding == "EXPLICIT") {
    // Convolutions with explicit padding are younger than TensorFlow 1.10.
    const std::vector<int64_t>& border = node.attrs().GetInts("explicit_paddings");
    const std::string paddings =
        IntsConst(node, "Pad/paddings", {4, 2}, {0, 0, border[0], border[1], border[2], border[3], 0, 0});
    std::string& images = inputs[conv2d::kImages];
    images =
        out_.AddNode("Pad", absl::StrCat(node.name(), "/Pad"), {images, paddings},
                     {{"T", TypeAttr(node.input(conv2d::kImages).dtype())}, {"Tpaddings", TypeAttr(DType::kInt32)}});
    padding = "VALID";
  }
  return AddWith(node, "Conv2D", inputs,
                 {{"strides", PerImageAxis(node.attrs().GetInts("strides"))},
                  {"dilations", PerImageAxis(node.attrs().GetInts("dilations"))},
                  {"padding", StringAttr(padding)}});
}

Converter::Result Converter::MaxPool(const Node& node) {
  const std::string& padding = node.attrs().Get<std::string>("padding");
  if (padding == "EXPLICIT") return NotConverted(node, ": TensorFlow pads pools only as SAME or VALID do");
  return Add(node, "MaxPool",
             {{"ksize", PerImageAxis(node.attrs().GetInts("ksize"))},
              {"strides", PerImageAxis(node.attrs().GetInts("strides"))},
              {"padding", StringAttr(padding)}});
}

Converter::Result Converter::FusedBatchNorm(const Node& node) {
  namespace norm = compute::fused_batch_norm_inference;
  if (node.input(norm::kX).shape().rank() != 4) return NotConverted(node, ": TensorFlow's is for images only");
  if (node.num_inputs() > norm::kResidual || !node.attrs().Get<std::string>("activation").empty()) {
    return NotConverted(node, " fused with what follows it");
  }
  return Add(
      node, "FusedBatchNorm",
      {{"epsilon", FloatAttr(static_cast<float>(node.attrs().GetFloat("epsilon")))}, {"is_training", BoolAttr(false)}});
}

Converter::Result Converter::Mean(const Node& node) {
  std::vector<int64_t> axes = node.attrs().GetInts("axes");
  for (int64_t& axis : axes) axis += axis < 0 ? node.input(0).shape().rank() : 0;
  if (IsBatched(node.input(0)) && std::count(axes.begin(), axes.end(), 0) > 0) return MovesBatch(node);
  return AddWith(node, "Mean", {names_.at(node.input(0)), IntsConst(node, "reduction_indices", axes)},
                 {{"keep_dims", BoolAttr(node.attrs().GetBool("keep_dims"))}, {"Tidx", TypeAttr(DType::kInt32)}});
}

Converter::Result Converter::MatMul(const Node& node) {
  namespace matmul = compute::matmul;
  const bool transpose_a = node.attrs().GetBool("transpose_a");
  if (node.input(matmul::kA).shape().rank() != 2) {
    return NotConverted(node, " for products of more than two dimensions");
  }
  if (IsBatched(node.input(matmul::kB)) || (IsBatched(node.input(matmul::kA)) && transpose_a)) return MovesBatch(node);
  return Add(node, "MatMul",
             {{"transpose_a", BoolAttr(transpose_a)}, {"transpose_b", BoolAttr(node.attrs().GetBool("transpose_b"))}});
}

Converter::Result Converter::Reshape(const Node& node) {
  const compute::Shape& from = node.input(0).shape();
  const compute::Shape& to = node.output(0).shape();
  std::vector<int64_t> dims(to.dims().begin(), to.dims().end());
  if (IsBatched(node.input(0))) {
    if (to.rank() == 0 || to.dim(0) != from.dim(0)) return MovesBatch(node);
    dims[0] = -1;
  }
  return AddWith(node, "Reshape", {names_.at(node.input(0)), IntsConst(node, "shape", dims)},
                 {{"Tshape", TypeAttr(DType::kInt32)}});
}

Converter::Result Converter::Transpose(const Node& node) {
  const std::vector<int64_t>& perm = node.attrs().GetInts("perm");
  if (IsBatched(node.input(0)) && perm[0] != 0) return MovesBatch(node);
  return AddWith(node, "Transpose", {names_.at(node.input(0)), IntsConst(node, "perm", perm)},
                 {{"Tperm", TypeAttr(DType::kInt32)}});
}

Converter::Result Converter::Concat(const Node& node) {
  std::vector<std::string> inputs = InputNames(node);
  const int64_t num_inputs = node.num_inputs(), given = node.attrs().GetInt("axis");
  const int64_t axis = given < 0 ? given + node.output(0).shape().rank() : given;
  const auto is_batched = [&](const Value& input) { return IsBatched(input); };
  const int64_t num_batched = std::count_if(node.inputs().begin(), node.inputs().end(), is_batched);
  if (num_batched > 0 && (axis == 0 || num_batched < num_inputs)) return MovesBatch(node);
  inputs.push_back(IntsConst(node, "axis", {}, {axis}));
  return AddWith(node, "ConcatV2", inputs, {{"N", IntAttr(num_inputs)}, {"Tidx", TypeAttr(DType::kInt32)}});
}

Converter::Result Converter::Gather(const Node& node) {
  namespace gather = compute::gather;
  if (IsBatched(node.input(gather::kParams))) return MovesBatch(node);
  std::vector<std::string> inputs = InputNames(node);
  inputs.push_back(IntsConst(node, "axis", {}, {0}));
  return out_.AddNode("GatherV2", node.name(), inputs,
                      {{"Tparams", TypeAttr(node.input(gather::kParams).dtype())},
                       {"Tindices", TypeAttr(node.input(gather::kIndices).dtype())},
                       {"Taxis", TypeAttr(DType::kInt32)}});
}

Converter::Result Converter::Cast(const Node& node) {
  return out_.AddNode("Cast", node.name(), InputNames(node),
                      {{"SrcT", TypeAttr(node.input(0).dtype())}, {"DstT", TypeAttr(node.output(0).dtype())}});
}

Converter::Result Converter::ArgMax(const Node& node) {
  const int64_t rank = node.input(0).shape().rank();
  if (IsBatched(node.input(0)) && rank < 2) return MovesBatch(node);
  return AddWith(node, "ArgMax", {names_.at(node.input(0)), IntsConst(node, "dimension", {}, {rank - 1})},
                 {{"Tidx", TypeAttr(DType::kInt32)}, {"output_type", TypeAttr(DType::kInt64)}});
}

Converter::Result Converter::Softmax(const Node& node) {
  if (IsBatched(node.input(0)) && node.input(0).shape().rank() < 2) return MovesBatch(node);
  return Same(node);
}

Converter::Function Converter::FunctionFor(const Node& node) {
  static const auto* const functions = new absl::flat_hash_map<compute::OpName, Function>{
      {op::Add, &Converter::Same},          {op::ArgMax, &Converter::ArgMax},
      {op::BiasAdd, &Converter::Same},      {op::Cast, &Converter::Cast},
      {op::Concat, &Converter::Concat},     {op::Constant, &Converter::Constant},
      {op::Conv2D, &Converter::Conv2D},     {op::FusedBatchNormInference, &Converter::FusedBatchNorm},
      {op::Gather, &Converter::Gather},     {op::Input, &Converter::Input},
      {op::MatMul, &Converter::MatMul},     {op::MaxPool, &Converter::MaxPool},
      {op::Mean, &Converter::Mean},         {op::Mul, &Converter::Same},
      {op::Relu, &Converter::Same},         {op::Reshape, &Converter::Reshape},
      {op::Softmax, &Converter::Softmax},   {op::Transpose, &Converter::Transpose},
      {op::Variable, &Converter::Variable},
  };
  const auto it = functions->find(node.op().name);
  return it == functions->end() ? nullptr : it->second;
}

absl::StatusOr<std::vector<std::string>> Converter::Convert(absl::Span<const Value> fetches) {
  // Nodes are in the order of execution: what is needed is known going back, what it is made of going forth.
  absl::flat_hash_set<const Node*> needed;
  for (const Value& fetch : fetches) needed.insert(fetch.node());
  const auto& nodes = fetches[0].graph()->nodes();
  for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
    if (!needed.contains(node->get()) || names_.contains((*node)->output(0))) continue;
    for (const Value& input : (*node)->inputs()) needed.insert(input.node());
  }
  for (const auto& node : nodes) {
    if (!needed.contains(node.get()) || names_.contains(node->output(0))) continue;
    const Function function = FunctionFor(*node);
    if (function == nullptr) return NotConverted(*node, "");
    for (const Value& input : node->inputs()) {
      if (!names_.contains(input)) return NotConverted(*input.node(), absl::StrCat(" for its output ", input.index()));
      if (!IsBatched(input)) continue;
      batched_.insert(node.get());
      // A value of fewer dimensions would be broadcast along the batch; but a row is gathered for each index.
      const bool is_broadcast = node->num_inputs() > 1 && input.shape().rank() < node->output(0).shape().rank();
      if (is_broadcast && !node->Is(op::Gather)) return MovesBatch(*node);
    }
    ASSIGN_OR_RETURN(names_[node->output(0)], (this->*function)(*node));
  }
  std::vector<std::string> names;
  for (const Value& fetch : fetches) {
    if (!names_.contains(fetch)) return NotConverted(*fetch.node(), absl::StrCat(" for its output ", fetch.index()));
    names.push_back(names_.at(fetch));
  }
  return names;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> AddGraph(absl::Span<const GraphFeed> feeds,
                                                  absl::Span<const compute::Value> fetches, GraphDefBuilder& out) {
  return Converter(feeds, out).Convert(fetches);
}

}  // namespace official::exporting
