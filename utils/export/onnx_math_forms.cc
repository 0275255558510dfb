#include <algorithm>
#include <utility>

#include "utils/compute/core/status.h"
#include "utils/export/onnx_forms.h"

namespace official::exporting {
namespace {

using compute::DType;
using tensorflow::NodeDef;
using Ints = OnnxWalk::Ints;
using Result = OnnxWalk::Result;

Result Same(OnnxWalk& walk, const NodeDef& node, absl::string_view) { return walk.Get(node.input(0)); }

Result Elementwise(OnnxWalk& walk, const NodeDef& node, absl::string_view op) {
  // On images as they are, if there are any, unless something would be broadcast along their channels.
  OnnxLayout layout = kOwn;
  bool all_fit = true;
  for (const std::string& input : node.input()) {
    ASSIGN_OR_RETURN(const OnnxValue value, walk.GetAsIs(input));
    if (value.layout == kChannelsFirst) layout = kChannelsFirst;
    all_fit = all_fit && (value.rank == kImageRank || value.rank == 0);
  }
  if (!all_fit) layout = kOwn;
  OnnxValues inputs;
  int rank = 0;
  for (const std::string& input : node.input()) {
    ASSIGN_OR_RETURN(OnnxValue value, walk.Get(input, layout));
    rank = std::max(rank, value.rank);
    inputs.push_back(std::move(value));
  }
  // Its remainders of these have the dividend's sign.
  if (op == "Mod" && compute::IsFloating(inputs[0].dtype)) return NoOnnxForm(node, " for floating-point numbers");
  OnnxValue result = walk.Add(node.name(), op, inputs, {}, inputs[0].dtype, rank);
  result.layout = layout;
  return result;
}

Result Comparison(OnnxWalk& walk, const NodeDef& node, absl::string_view op) {
  ASSIGN_OR_RETURN(const OnnxValues inputs, walk.GetInputs(node, 2));
  return walk.Add(node.name(), op, inputs, {}, DType::kBool, std::max(inputs[0].rank, inputs[1].rank));
}

Result NotEqual(OnnxWalk& walk, const NodeDef& node, absl::string_view op) {
  ASSIGN_OR_RETURN(const OnnxValues inputs, walk.GetInputs(node, 2));
  const int rank = std::max(inputs[0].rank, inputs[1].rank);
  return walk.Add(node.name(), op, {walk.Add(Step(node, "Equal"), "Equal", inputs, {}, DType::kBool, rank)}, {},
                  DType::kBool, rank);
}

Result SquaredDifference(OnnxWalk& walk, const NodeDef& node, absl::string_view op) {
  ASSIGN_OR_RETURN(const OnnxValues inputs, walk.GetInputs(node, 2));
  const int rank = std::max(inputs[0].rank, inputs[1].rank);
  const OnnxValue difference = walk.Add(Step(node, "Sub"), "Sub", inputs, {}, inputs[0].dtype, rank);
  return walk.Add(node.name(), op, {difference, difference}, {}, inputs[0].dtype, rank);
}

Result Rsqrt(OnnxWalk& walk, const NodeDef& node, absl::string_view op) {
  ASSIGN_OR_RETURN(const OnnxValue x, walk.Get(node.input(0)));
  return walk.Add(node.name(), op, {walk.Add(Step(node, "Sqrt"), "Sqrt", {x}, {}, x.dtype, x.rank)}, {}, x.dtype,
                  x.rank);
}

Result FloorDiv(OnnxWalk& walk, const NodeDef& node, absl::string_view op) {
  // ONNX rounds quotients of integers towards zero, but its Mod has the divisor's sign.
  ASSIGN_OR_RETURN(const OnnxValues x, walk.GetInputs(node, 2));
  const int rank = std::max(x[0].rank, x[1].rank);
  if (compute::IsFloating(x[0].dtype)) return NoOnnxForm(node, " for floating-point numbers");
  const OnnxValue remainder = walk.Add(Step(node, "Mod"), "Mod", x, {}, x[0].dtype, rank);
  const OnnxValue multiple = walk.Add(Step(node, "Sub"), "Sub", {x[0], remainder}, {}, x[0].dtype, rank);
  return walk.Add(node.name(), op, {multiple, x[1]}, {}, x[0].dtype, rank);
}

Result Cast(OnnxWalk& walk, const NodeDef& node, absl::string_view) {
  ASSIGN_OR_RETURN(const OnnxValue x, walk.Get(node.input(0)));
  return walk.CastTo(node.name(), x, TypeAttrOf(node, "DstT"));
}

Result OfRows(OnnxWalk& walk, const NodeDef& node, absl::string_view op) {
  ASSIGN_OR_RETURN(const OnnxValue x, walk.Get(node.input(0)));
  return walk.Add(node.name(), op, {x}, {OnnxInt("axis", -1)}, x.dtype, x.rank);
}

Result Reduce(OnnxWalk& walk, const NodeDef& node, absl::string_view op) {
  ASSIGN_OR_RETURN(OnnxValue x, walk.GetAsIs(node.input(0)));
  ASSIGN_OR_RETURN(Ints axes, walk.IntsOf(node, 1));
  if (axes.empty()) return x;  // of which ONNX would reduce all
  const bool keep_dims = BoolAttrOf(node, "keep_dims");
  for (int64_t& axis : axes) axis += axis < 0 ? x.rank : 0;
  // The mean of each channel is that of images in either layout.
  const bool of_pixels = x.layout == kChannelsFirst &&
                         std::all_of(axes.begin(), axes.end(), [](int64_t axis) { return axis == 1 || axis == 2; });
  if (of_pixels) {
    for (int64_t& axis : axes) ++axis;
  } else {
    ASSIGN_OR_RETURN(x, walk.Get(node.input(0)));
  }
  const int rank = keep_dims ? x.rank : x.rank - static_cast<int>(axes.size());
  const OnnxBuilder::Attrs attrs = {OnnxInts("axes", axes), OnnxInt("keepdims", keep_dims ? 1 : 0)};
  if (x.dtype == DType::kBool) {
    x = walk.CastTo(Step(node, "Cast"), x, DType::kInt32);
    return walk.CastTo(node.name(), walk.Add(Step(node, op), op, {x}, attrs, x.dtype, rank), DType::kBool);
  }
  OnnxValue result = walk.Add(node.name(), op, {x}, attrs, x.dtype, rank);
  if (of_pixels && keep_dims) result.layout = kChannelsFirst;
  return result;
}

Result ArgMax(OnnxWalk& walk, const NodeDef& node, absl::string_view op) {
  ASSIGN_OR_RETURN(const OnnxValue x, walk.Get(node.input(0)));
  ASSIGN_OR_RETURN(const Ints axis, walk.IntsOf(node, 1));
  return walk.Add(node.name(), op, {x}, {OnnxInt("axis", axis[0]), OnnxInt("keepdims", 0)}, DType::kInt64, x.rank - 1);
}

}  // namespace

OnnxForms OnnxFormsOfMath() {
  return {
      {"Add", {Elementwise, "Add"}},
      {"All", {Reduce, "ReduceMin"}},
      {"Any", {Reduce, "ReduceMax"}},
      {"ArgMax", {ArgMax, "ArgMax"}},
      {"Cast", {Cast, "Cast"}},
      {"Cos", {Elementwise, "Cos"}},
      {"Equal", {Comparison, "Equal"}},
      {"FloorDiv", {FloorDiv, "Div"}},
      {"FloorMod", {Elementwise, "Mod"}},
      {"Greater", {Comparison, "Greater"}},
      {"Identity", {Same, ""}},
      {"Less", {Comparison, "Less"}},
      {"LogSoftmax", {OfRows, "LogSoftmax"}},
      {"LogicalAnd", {Elementwise, "And"}},
      {"LogicalNot", {Elementwise, "Not"}},
      {"Mean", {Reduce, "ReduceMean"}},
      {"Min", {Reduce, "ReduceMin"}},
      {"Mul", {Elementwise, "Mul"}},
      {"NotEqual", {NotEqual, "Not"}},
      {"Pow", {Elementwise, "Pow"}},
      {"RealDiv", {Elementwise, "Div"}},
      {"Relu", {Elementwise, "Relu"}},
      {"Rsqrt", {Rsqrt, "Reciprocal"}},
      {"Sin", {Elementwise, "Sin"}},
      {"Softmax", {OfRows, "Softmax"}},
      {"SquaredDifference", {SquaredDifference, "Mul"}},
      {"Sub", {Elementwise, "Sub"}},
  };
}

}  // namespace official::exporting
