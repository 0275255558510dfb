#include <utility>

#include "utils/compute/core/status.h"
#include "utils/export/onnx_forms.h"

namespace official::exporting {
namespace {

using compute::DType;
using tensorflow::NodeDef;
using Ints = OnnxWalk::Ints;
using Result = OnnxWalk::Result;

// What gives a window its place.
OnnxBuilder::Attrs WindowAttrs(const NodeDef& node) {
  const Ints strides = IntsAttrOf(node, "strides");
  OnnxBuilder::Attrs attrs = {OnnxInts("strides", {strides[1], strides[2]})};
  if (node.attr().at("padding").s() == "SAME") attrs.push_back(OnnxString("auto_pad", "SAME_UPPER"));
  return attrs;
}

// Adds what a Conv2D computes, plus `bias` if there is one, under the name of the node `last`.
Result Convolution(OnnxWalk& walk, const NodeDef& node, const NodeDef& last, const OnnxValues& bias) {
  OnnxBuilder::Attrs attrs = WindowAttrs(node);
  const Ints dilations = IntsAttrOf(node, "dilations");
  attrs.push_back(OnnxInts("dilations", {dilations[1], dilations[2]}));
  if (node.attr().at("padding").s() == "SAME" && dilations[1] * dilations[2] != 1) {
    return NoOnnxForm(node, " with dilations and padding SAME");  // ONNX Runtime refuses it
  }
  std::string images = node.input(0);
  const NodeDef& pad = walk.Producer(images);
  if (pad.op() == "Pad") {
    ASSIGN_OR_RETURN(const Ints pads, walk.IntsOf(pad, 1));  // before and behind in N, H, W, C
    const bool fits = node.attr().at("padding").s() == "VALID" && pads[0] + pads[1] + pads[6] + pads[7] == 0;
    if (!fits) return NoOnnxForm(pad, " before such a convolution");
    attrs.push_back(OnnxInts("pads", {pads[2], pads[4], pads[3], pads[5]}));
    images = pad.input(0);
  }
  ASSIGN_OR_RETURN(const OnnxValue x, walk.Get(images, kChannelsFirst));
  ASSIGN_OR_RETURN(const OnnxValue filters, walk.Filters(node, 1));
  OnnxValues inputs = {x, filters};
  inputs.insert(inputs.end(), bias.begin(), bias.end());
  OnnxValue result = walk.Add(last.name(), "Conv", inputs, std::move(attrs), x.dtype, kImageRank);
  result.layout = kChannelsFirst;
  return result;
}

Result MaxPool(OnnxWalk& walk, const NodeDef& node, absl::string_view op) {
  ASSIGN_OR_RETURN(const OnnxValue x, walk.Get(node.input(0), kChannelsFirst));
  const Ints window = IntsAttrOf(node, "ksize");
  OnnxBuilder::Attrs attrs = WindowAttrs(node);
  attrs.push_back(OnnxInts("kernel_shape", {window[1], window[2]}));
  OnnxValue result = walk.Add(node.name(), op, {x}, std::move(attrs), x.dtype, kImageRank);
  result.layout = kChannelsFirst;
  return result;
}

Result FusedBatchNorm(OnnxWalk& walk, const NodeDef& node, absl::string_view op) {
  ASSIGN_OR_RETURN(const OnnxValue x, walk.Get(node.input(0), kChannelsFirst));
  OnnxValues inputs = {x};
  for (int i = 1; i < 5; ++i) {  // scale, offset, mean, variance: ONNX has the same order
    ASSIGN_OR_RETURN(OnnxValue input, walk.Get(node.input(i)));
    inputs.push_back(std::move(input));
  }
  OnnxValue result =
      walk.Add(node.name(), op, inputs, {OnnxFloat("epsilon", node.attr().at("epsilon").f())}, x.dtype, kImageRank);
  result.layout = kChannelsFirst;
  return result;
}

// The same for a MatMul.
Result Product(OnnxWalk& walk, const NodeDef& node, const NodeDef& last, const OnnxValues& bias) {
  ASSIGN_OR_RETURN(OnnxValues inputs, walk.GetInputs(node, 2));
  const bool transpose_a = BoolAttrOf(node, "transpose_a"), transpose_b = BoolAttrOf(node, "transpose_b");
  const DType dtype = inputs[0].dtype;
  inputs.insert(inputs.end(), bias.begin(), bias.end());
  if (inputs.size() == 2 && !transpose_a && !transpose_b) return walk.Add(last.name(), "MatMul", inputs, {}, dtype, 2);
  return walk.Add(last.name(), "Gemm", inputs, {OnnxInt("transA", transpose_a), OnnxInt("transB", transpose_b)}, dtype,
                  2);
}

Result Conv2D(OnnxWalk& walk, const NodeDef& node, absl::string_view) { return Convolution(walk, node, node, {}); }

Result MatMul(OnnxWalk& walk, const NodeDef& node, absl::string_view) { return Product(walk, node, node, {}); }

Result BiasAdd(OnnxWalk& walk, const NodeDef& node, absl::string_view op) {
  const NodeDef& to = walk.Producer(node.input(0));
  ASSIGN_OR_RETURN(const OnnxValue bias, walk.Get(node.input(1)));
  if (to.op() == "Conv2D") return Convolution(walk, to, node, {bias});
  if (to.op() == "MatMul") return Product(walk, to, node, {bias});
  ASSIGN_OR_RETURN(const OnnxValue x, walk.Get(node.input(0)));
  return walk.Add(node.name(), op, {x, bias}, {}, x.dtype, x.rank);
}

Result BatchMatMul(OnnxWalk& walk, const NodeDef& node, absl::string_view op) {
  ASSIGN_OR_RETURN(OnnxValues inputs, walk.GetInputs(node, 2));
  const char* const adjoint[] = {"adj_x", "adj_y"};
  for (int i = 0; i < 2; ++i) {
    if (!BoolAttrOf(node, adjoint[i])) continue;
    Ints perm(inputs[i].rank);
    for (int axis = 0; axis < inputs[i].rank; ++axis) perm[axis] = axis;
    std::swap(perm[perm.size() - 2], perm[perm.size() - 1]);
    inputs[i] = walk.Permuted(Step(node, "Transpose"), inputs[i], perm);
  }
  return walk.Add(node.name(), op, inputs, {}, inputs[0].dtype, inputs[0].rank);
}

}  // namespace

OnnxForms OnnxFormsOfLayers() {
  return {
      {"BatchMatMul", {BatchMatMul, "MatMul"}},
      {"BiasAdd", {BiasAdd, "Add"}},
      {"Conv2D", {Conv2D, "Conv"}},
      {"FusedBatchNorm", {FusedBatchNorm, "BatchNormalization"}},
      {"MatMul", {MatMul, "MatMul"}},
      {"MaxPool", {MaxPool, "MaxPool"}},
  };
}

}  // namespace official::exporting
