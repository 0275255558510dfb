#include <algorithm>
#include <limits>

#include "utils/compute/core/status.h"
#include "utils/export/onnx_forms.h"

namespace official::exporting {
namespace {

using compute::DType;
using tensorflow::NodeDef;
using Ints = OnnxWalk::Ints;
using Result = OnnxWalk::Result;

Result Unfed(OnnxWalk&, const NodeDef& node, absl::string_view) {
  return absl::InvalidArgumentError(absl::StrCat("the placeholder ", node.name(), " is not of the signature"));
}

Result Reshape(OnnxWalk& walk, const NodeDef& node, absl::string_view op) {
  ASSIGN_OR_RETURN(const OnnxValue x, walk.Get(node.input(0)));
  if (walk.Producer(node.input(1)).op() == "Const") {
    ASSIGN_OR_RETURN(const Ints dims, walk.IntsOf(node, 1));
    // ONNX would take the size from x.
    if (std::count(dims.begin(), dims.end(), 0) > 0) return NoOnnxForm(node, " to a shape without elements");
    return walk.Add(node.name(), op, {x, walk.Int64s(dims)}, {}, x.dtype, static_cast<int>(dims.size()));
  }
  ASSIGN_OR_RETURN(const OnnxValue shape, walk.Get(node.input(1)));
  ASSIGN_OR_RETURN(const int rank, walk.RankOf(node, 1));
  return walk.Add(node.name(), op, {x, walk.CastTo(Step(node, "Cast"), shape, DType::kInt64)}, {}, x.dtype, rank);
}

Result Transpose(OnnxWalk& walk, const NodeDef& node, absl::string_view) {
  ASSIGN_OR_RETURN(const OnnxValue x, walk.Get(node.input(0)));
  ASSIGN_OR_RETURN(const Ints perm, walk.IntsOf(node, 1));
  return walk.Permuted(node.name(), x, perm);
}

Result ExpandDims(OnnxWalk& walk, const NodeDef& node, absl::string_view op) {
  ASSIGN_OR_RETURN(const OnnxValue x, walk.Get(node.input(0)));
  ASSIGN_OR_RETURN(const Ints axis, walk.IntsOf(node, 1));
  return walk.Add(node.name(), op, {x, walk.Int64s(axis)}, {}, x.dtype, x.rank + 1);
}

Result Concat(OnnxWalk& walk, const NodeDef& node, absl::string_view op) {
  const int count = node.input_size() - 1;
  ASSIGN_OR_RETURN(const OnnxValues inputs, walk.GetInputs(node, count));
  ASSIGN_OR_RETURN(const Ints axis, walk.IntsOf(node, count));
  return walk.Add(node.name(), op, inputs, {OnnxInt("axis", axis[0])}, inputs[0].dtype, inputs[0].rank);
}

Result Gather(OnnxWalk& walk, const NodeDef& node, absl::string_view op) {
  ASSIGN_OR_RETURN(const OnnxValues inputs, walk.GetInputs(node, 2));
  ASSIGN_OR_RETURN(const Ints axis, walk.IntsOf(node, 2));
  return walk.Add(node.name(), op, inputs, {OnnxInt("axis", axis[0])}, inputs[0].dtype,
                  inputs[0].rank - 1 + inputs[1].rank);
}

Result StridedSlice(OnnxWalk& walk, const NodeDef& node, absl::string_view) {
  ASSIGN_OR_RETURN(OnnxValue x, walk.Get(node.input(0)));
  ASSIGN_OR_RETURN(const Ints begin, walk.IntsOf(node, 1));
  ASSIGN_OR_RETURN(const Ints end, walk.IntsOf(node, 2));
  ASSIGN_OR_RETURN(const Ints strides, walk.IntsOf(node, 3));
  const auto has = [&](const char* mask, size_t axis) { return ((IntAttrOf(node, mask) >> axis) & 1) != 0; };
  if (std::count(strides.begin(), strides.end(), 1) != static_cast<int64_t>(strides.size()) ||
      IntAttrOf(node, "ellipsis_mask") != 0 || IntAttrOf(node, "new_axis_mask") != 0) {
    return NoOnnxForm(node, " with strides, an ellipsis or new axes");
  }
  Ints axes, from, to, single;
  for (size_t axis = 0; axis < begin.size(); ++axis) {
    if (has("shrink_axis_mask", axis)) {
      single.push_back(static_cast<int64_t>(axis));
    } else if (!has("begin_mask", axis) || !has("end_mask", axis)) {
      axes.push_back(static_cast<int64_t>(axis));
      from.push_back(has("begin_mask", axis) ? 0 : begin[axis]);
      to.push_back(has("end_mask", axis) ? std::numeric_limits<int64_t>::max() : end[axis]);
    }
  }
  if (!axes.empty()) {
    x = walk.Add(single.empty() ? node.name() : Step(node, "Slice"), "Slice",
                 {x, walk.Int64s(from), walk.Int64s(to), walk.Int64s(axes)}, {}, x.dtype, x.rank);
  }
  std::reverse(single.begin(), single.end());  // so that axes keep their numbers
  for (const int64_t axis : single) {
    x = walk.Add(node.name(), "Gather", {x, walk.Int64(begin[axis])}, {OnnxInt("axis", axis)}, x.dtype, x.rank - 1);
  }
  return x;
}

Result Shape(OnnxWalk& walk, const NodeDef& node, absl::string_view op) {
  ASSIGN_OR_RETURN(const OnnxValue x, walk.Get(node.input(0)));
  return walk.CastTo(node.name(), walk.Add(Step(node, op), op, {x}, {}, DType::kInt64, 1),
                     TypeAttrOf(node, "out_type"));
}

Result Pack(OnnxWalk& walk, const NodeDef& node, absl::string_view op) {
  ASSIGN_OR_RETURN(OnnxValues inputs, walk.GetInputs(node, node.input_size()));
  for (OnnxValue& input : inputs) {
    if (input.rank != 0) return NoOnnxForm(node, " for others than scalars");
    input = walk.Add(Step(node, "Unsqueeze"), "Unsqueeze", {input, walk.Int64s({0})}, {}, input.dtype, 1);
  }
  return walk.Add(node.name(), op, inputs, {OnnxInt("axis", 0)}, inputs[0].dtype, 1);
}

Result Range(OnnxWalk& walk, const NodeDef& node, absl::string_view op) {
  ASSIGN_OR_RETURN(const OnnxValues inputs, walk.GetInputs(node, 3));
  return walk.Add(node.name(), op, inputs, {}, inputs[0].dtype, 1);
}

Result Fill(OnnxWalk& walk, const NodeDef& node, absl::string_view op) {
  ASSIGN_OR_RETURN(const OnnxValue dims, walk.Get(node.input(0)));
  ASSIGN_OR_RETURN(const int rank, walk.RankOf(node, 0));
  ASSIGN_OR_RETURN(const compute::Tensor value, walk.ConstOf(node, 1));
  return walk.Add(node.name(), op, {walk.CastTo(Step(node, "Cast"), dims, DType::kInt64)},
                  {OnnxTensor("value", value.Reshaped({1}))}, value.dtype(), rank);
}

Result Select(OnnxWalk& walk, const NodeDef& node, absl::string_view op) {
  // TensorFlow's first Select takes whole rows.
  ASSIGN_OR_RETURN(OnnxValues inputs, walk.GetInputs(node, 3));
  const OnnxValue& condition = inputs[0];
  const int rank = inputs[1].rank;
  if (condition.rank == 1 && rank > 1) {
    Ints axes;
    for (int axis = 1; axis < rank; ++axis) axes.push_back(axis);
    inputs[0] = walk.Add(Step(node, "Unsqueeze"), "Unsqueeze", {condition, walk.Int64s(axes)}, {}, DType::kBool, rank);
  }
  return walk.Add(node.name(), op, inputs, {}, inputs[1].dtype, rank);
}

Result TopK(OnnxWalk& walk, const NodeDef& node, absl::string_view op) {
  ASSIGN_OR_RETURN(const OnnxValue x, walk.Get(node.input(0)));
  ASSIGN_OR_RETURN(const Ints k, walk.IntsOf(node, 1));
  const std::vector<std::string> outputs = walk.out().AddNodeOf(2, op, node.name(), {x.name, walk.Int64s(k).name});
  walk.Set(absl::StrCat(node.name(), ":1"),
           walk.CastTo(Step(node, "Cast"), {outputs[1], DType::kInt64, x.rank}, DType::kInt32));
  return OnnxValue{outputs[0], x.dtype, x.rank};
}

}  // namespace

OnnxForms OnnxFormsOfArrays() {
  return {
      {"ConcatV2", {Concat, "Concat"}},
      {"ExpandDims", {ExpandDims, "Unsqueeze"}},
      {"Fill", {Fill, "ConstantOfShape"}},
      {"GatherV2", {Gather, "Gather"}},
      {"Pack", {Pack, "Concat"}},
      {"Placeholder", {Unfed, ""}},
      {"Range", {Range, "Range"}},
      {"Reshape", {Reshape, "Reshape"}},
      {"Select", {Select, "Where"}},
      {"Shape", {Shape, "Shape"}},
      {"StridedSlice", {StridedSlice, "Slice"}},
      {"TopKV2", {TopK, "TopK"}},
      {"Transpose", {Transpose, "Transpose"}},
  };
}

}  // namespace official::exporting
