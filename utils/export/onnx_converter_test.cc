#include "utils/export/onnx_converter.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "utils/export/onnx_check.h"
#include "utils/export/tf_ops.h"

namespace official::exporting {
namespace {

using Catch::Matchers::Contains;
using compute::DType;
using compute::Tensor;
using Ints = std::vector<int64_t>;
using Names = std::vector<std::string>;
using Attrs = GraphDefBuilder::Attrs;

const Attrs kFloat = {{"T", TypeAttr(DType::kFloat32)}};

// A TensorFlow graph with the input "image" [-1, 8, 6, 3], and what it becomes.
struct Conversion {
  std::string Weight(const std::string& name, compute::Shape shape) {
    const compute::TensorType type{DType::kFloat32, std::move(shape)};
    variables[name] = Tensor(type);
    for (int64_t i = 0; i < variables[name].num_elements(); ++i) variables[name].data<float>()[i] = i;
    return graph.AddVariable(name, type);
  }
  std::string Int32s(const std::string& name, compute::Shape shape, const std::vector<int32_t>& values) {
    return graph.AddConst(name, Tensor::Of<int32_t>(std::move(shape), values));
  }
  std::string Conv(const std::string& images, const std::string& filters, const std::string& padding) {
    return graph.AddNode("Conv2D", "conv", {images, filters},
                         {{"T", TypeAttr(DType::kFloat32)},
                          {"strides", IntsAttr({1, 2, 1, 1})},
                          {"dilations", IntsAttr({1, 1, 1, 1})},
                          {"padding", StringAttr(padding)}});
  }
  Signature SignatureOf(const std::string& output) const {
    return {"predict",
            {{"image", {image, DType::kFloat32, {-1, 8, 6, 3}}}},
            {{"result", {output, DType::kFloat32, {-1, -1, 2}}}}};
  }
  absl::StatusOr<onnx::ModelProto> Convert(const std::string& output) {
    return ConvertToOnnx(graph, SignatureOf(output), variables);
  }
  onnx::GraphProto GraphOf(const std::string& output) {
    const onnx::ModelProto model = Convert(output).value();
    CHECK(CheckOnnxModel(model, SignatureOf(output)) == absl::OkStatus());
    return model.graph();
  }
  std::string ErrorOf(const std::string& output) {
    const absl::Status status = Convert(output).status();
    CHECK(absl::IsUnimplemented(status));
    return std::string(status.message());
  }

  GraphDefBuilder graph;
  const std::string image = graph.AddPlaceholder("input_tensor", DType::kFloat32, {-1, 8, 6, 3});
  std::map<std::string, Tensor> variables;
};

const onnx::NodeProto& NodeOf(const onnx::GraphProto& graph, const std::string& name) {
  for (const onnx::NodeProto& node : graph.node()) {
    if (node.name() == name) return node;
  }
  FAIL("no node " << name);
  std::abort();
}
const onnx::AttributeProto& AttrOf(const onnx::NodeProto& node, const std::string& name) {
  for (const onnx::AttributeProto& attr : node.attribute()) {
    if (attr.name() == name) return attr;
  }
  FAIL("no attribute " << name);
  std::abort();
}
Ints IntsOf(const onnx::NodeProto& node, const std::string& name) {
  const onnx::AttributeProto& attr = AttrOf(node, name);
  return Ints(attr.ints().begin(), attr.ints().end());
}
Names Inputs(const onnx::NodeProto& node) { return Names(node.input().begin(), node.input().end()); }
Names Ops(const onnx::GraphProto& graph) {
  Names ops;
  for (const onnx::NodeProto& node : graph.node()) ops.push_back(node.op_type());
  return ops;
}
template <typename T>
std::vector<T> ValuesOf(const onnx::GraphProto& graph, const std::string& initializer) {
  for (const onnx::TensorProto& tensor : graph.initializer()) {
    if (tensor.name() != initializer) continue;
    std::vector<T> values(tensor.raw_data().size() / sizeof(T));
    std::memcpy(values.data(), tensor.raw_data().data(), tensor.raw_data().size());
    return values;
  }
  FAIL("no initializer " << initializer);
  std::abort();
}

TEST_CASE("A model has the version, the inputs and the outputs that clients know") {
  Conversion c;
  const onnx::ModelProto model = c.Convert(c.graph.AddNode("Relu", "relu", {c.image}, kFloat)).value();
  CHECK(model.ir_version() == 7);
  REQUIRE(model.opset_import_size() == 1);
  CHECK(model.opset_import(0).version() == 13);
  const onnx::GraphProto& graph = model.graph();
  CHECK(graph.name() == "predict");
  REQUIRE((graph.input_size() == 1 && graph.output_size() == 1));
  CHECK(graph.input(0).name() == "image");
  const auto& input = graph.input(0).type().tensor_type();
  CHECK(input.elem_type() == onnx::TensorProto::FLOAT);
  CHECK(input.shape().dim(0).dim_param() == "batch");
  CHECK(input.shape().dim(3).dim_value() == 3);
  CHECK(graph.output(0).name() == "result");
  CHECK(graph.output(0).type().tensor_type().shape().dim(0).dim_param() == "batch");
  CHECK(graph.output(0).type().tensor_type().shape().dim(1).dim_param() == "result_1");
  CHECK(Ops(graph) == Names{"Relu", "Identity"});
  CHECK(Inputs(graph.node(0)) == Names{"image"});
  CHECK(graph.node(1).output(0) == "result");
}

TEST_CASE("Images are NCHW from the first to the last op on them, and filters OIHW") {
  Conversion c;
  const std::string filters = c.Weight("conv/kernel", {1, 2, 3, 2}), bias = c.Weight("conv/bias", {2});
  const std::string sum = c.graph.AddNode("BiasAdd", "bias_add", {c.Conv(c.image, filters, "SAME"), bias}, kFloat);
  const std::string relu = c.graph.AddNode("Relu", "relu", {sum}, kFloat);
  const std::string pool = c.graph.AddNode("MaxPool", "pool", {relu},
                                           {{"T", TypeAttr(DType::kFloat32)},
                                            {"ksize", IntsAttr({1, 3, 2, 1})},
                                            {"strides", IntsAttr({1, 2, 1, 1})},
                                            {"padding", StringAttr("VALID")}});
  const std::string twice = c.graph.AddNode("Add", "twice", {pool, pool}, kFloat);
  const std::string rows = c.graph.AddNode("Reshape", "rows", {twice, c.Int32s("shape", {3}, {-1, 3, 2})}, kFloat);
  const onnx::GraphProto graph = c.GraphOf(rows);
  CHECK(Ops(graph) == Names{"Transpose", "Conv", "Relu", "MaxPool", "Add", "Transpose", "Reshape", "Identity"});
  CHECK(IntsOf(graph.node(0), "perm") == Ints{0, 3, 1, 2});
  CHECK(IntsOf(graph.node(5), "perm") == Ints{0, 2, 3, 1});

  const onnx::NodeProto& conv = NodeOf(graph, "bias_add");
  CHECK(Inputs(conv) == Names{"input_tensor/NCHW", "conv/kernel/OIHW", "conv/bias"});
  CHECK(IntsOf(conv, "strides") == Ints{2, 1});
  CHECK(AttrOf(conv, "auto_pad").s() == "SAME_UPPER");
  // [height, width, in, out] is 0, 1, 2, ... [out, in, height, width]: by hand.
  CHECK(ValuesOf<float>(graph, "conv/kernel/OIHW") == std::vector<float>{0, 6, 2, 8, 4, 10, 1, 7, 3, 9, 5, 11});
  CHECK(ValuesOf<float>(graph, "conv/bias") == std::vector<float>{0, 1});
  CHECK(IntsOf(NodeOf(graph, "pool"), "kernel_shape") == Ints{3, 2});
  CHECK(ValuesOf<int64_t>(graph, NodeOf(graph, "rows").input(1)) == Ints{-1, 3, 2});
}

TEST_CASE("A border is the convolution's own, and the mean over pixels needs no transposition") {
  Conversion c;
  const std::string border = c.Int32s("paddings", {4, 2}, {0, 0, 1, 2, 3, 4, 0, 0});
  const std::string pad = c.graph.AddNode("Pad", "pad", {c.image, border}, kFloat);
  const std::string conv = c.Conv(pad, c.Weight("kernel", {1, 2, 3, 2}), "VALID");
  const std::string norm = c.graph.AddNode(
      "FusedBatchNorm", "norm",
      {conv, c.Weight("gamma", {2}), c.Weight("beta", {2}), c.Weight("mean", {2}), c.Weight("var", {2})},
      {{"T", TypeAttr(DType::kFloat32)}, {"epsilon", FloatAttr(1e-3f)}});
  const std::string mean = c.graph.AddNode("Mean", "means", {norm, c.Int32s("axes", {2}, {1, -2})},
                                           {{"T", TypeAttr(DType::kFloat32)}, {"keep_dims", BoolAttr(false)}});
  const onnx::GraphProto graph = c.GraphOf(mean);
  CHECK(Ops(graph) == Names{"Transpose", "Conv", "BatchNormalization", "ReduceMean", "Identity"});
  CHECK(IntsOf(NodeOf(graph, "conv"), "pads") == Ints{1, 3, 2, 4});
  CHECK(Inputs(NodeOf(graph, "norm")) == Names{"conv", "gamma", "beta", "mean", "var"});
  CHECK(AttrOf(NodeOf(graph, "norm"), "epsilon").f() == 1e-3f);
  CHECK(IntsOf(NodeOf(graph, "means"), "axes") == Ints{2, 3});
  CHECK(AttrOf(NodeOf(graph, "means"), "keepdims").i() == 0);
}

TEST_CASE("A sum with a vector along the channels, or a mean over them, is of images as TensorFlow has them") {
  Conversion c;
  const std::string conv = c.Conv(c.image, c.Weight("kernel", {1, 1, 3, 2}), "SAME");
  const std::string sum = c.graph.AddNode("Add", "sum", {conv, c.Weight("vector", {2})}, kFloat);
  CHECK(Inputs(NodeOf(c.GraphOf(sum), "sum")) == Names{"conv/NHWC", "vector"});
  const std::string mean = c.graph.AddNode("Mean", "means", {conv, c.Int32s("axes", {1}, {3})},
                                           {{"T", TypeAttr(DType::kFloat32)}, {"keep_dims", BoolAttr(true)}});
  const onnx::GraphProto graph = c.GraphOf(mean);
  CHECK(Inputs(NodeOf(graph, "means")) == Names{"conv/NHWC"});
  CHECK(IntsOf(NodeOf(graph, "means"), "axes") == Ints{3});
  CHECK(AttrOf(NodeOf(graph, "means"), "keepdims").i() == 1);
}

TEST_CASE("A dense layer is one Gemm; a product alone is a MatMul unless it transposes") {
  Conversion c;
  const std::string x = c.graph.AddNode("Reshape", "rows", {c.image, c.Int32s("shape", {2}, {-1, 3})}, kFloat);
  const std::string kernel = c.Weight("kernel", {3, 3});
  const std::string plain = c.graph.AddNode("MatMul", "plain", {x, kernel}, kFloat);
  const std::string turned = c.graph.AddNode("MatMul", "turned", {plain, kernel},
                                             {{"T", TypeAttr(DType::kFloat32)}, {"transpose_b", BoolAttr(true)}});
  const std::string product = c.graph.AddNode("MatMul", "product", {turned, kernel}, kFloat);
  const std::string dense = c.graph.AddNode("BiasAdd", "dense", {product, c.Weight("bias", {3})}, kFloat);
  const onnx::GraphProto graph = c.GraphOf(dense);
  CHECK(Ops(graph) == Names{"Reshape", "MatMul", "Gemm", "Gemm", "Identity"});
  CHECK(AttrOf(NodeOf(graph, "turned"), "transB").i() == 1);
  CHECK(AttrOf(NodeOf(graph, "dense"), "transB").i() == 0);
  CHECK(Inputs(NodeOf(graph, "dense")) == Names{"turned", "kernel", "bias"});
}

TEST_CASE("A loop has its condition before it and at the end of its body, and knows what is outside") {
  Conversion c;
  TfOps tf(c.graph, "scope");
  const TfOps::Node limit = tf.Add(tf.Dim({c.image, DType::kFloat32}, 1), tf.Int(1));
  const TfOps::Nodes last = tf.While(
      {tf.Int(0), tf.Float(1)},
      [&](const TfOps::Nodes& state) {
        return tf.Op("Less", {state[0], limit}, {}, DType::kBool);
      },
      [&](const TfOps::Nodes& state) -> TfOps::Nodes {
        return {tf.Add(state[0], tf.Int(1)), tf.Mul(state[1], tf.Cast(limit, DType::kFloat32))};
      });
  const onnx::GraphProto graph = c.GraphOf(last[1].name);
  const onnx::NodeProto& loop = NodeOf(graph, last[1].name);
  CHECK(loop.op_type() == "Loop");
  REQUIRE(loop.input_size() == 4);
  CHECK(loop.input(0).empty());
  const onnx::NodeProto& first = NodeOf(graph, loop.input(1));
  CHECK(first.op_type() == "Less");
  CHECK(first.input(0) == loop.input(2));
  CHECK(ValuesOf<int32_t>(graph, loop.input(2)) == std::vector<int32_t>{0});
  CHECK(ValuesOf<float>(graph, loop.input(3)) == std::vector<float>{1});

  const onnx::GraphProto& body = AttrOf(loop, "body").g();
  REQUIRE((body.input_size() == 4 && body.output_size() == 3));
  CHECK(body.input(1).type().tensor_type().elem_type() == onnx::TensorProto::BOOL);
  CHECK(body.input(2).type().tensor_type().elem_type() == onnx::TensorProto::INT32);
  CHECK(body.input(3).type().tensor_type().elem_type() == onnx::TensorProto::FLOAT);
  const onnx::NodeProto& again = NodeOf(body, NodeOf(body, body.output(0).name()).input(0));
  CHECK(again.op_type() == "Less");
  CHECK(again.input(1) == first.input(1));
  const onnx::NodeProto& next = NodeOf(body, again.input(0));
  CHECK(next.op_type() == "Add");
  CHECK(next.input(0) == body.input(2).name());
  CHECK(NodeOf(body, body.output(1).name()).input(0) == again.input(0));
}

TEST_CASE("A mean over no dimensions is its input: ONNX would take the mean of all") {
  Conversion c;
  const std::string mean = c.graph.AddNode("Mean", "means", {c.image, c.Int32s("axes", {0}, {})},
                                           {{"T", TypeAttr(DType::kFloat32)}, {"keep_dims", BoolAttr(false)}});
  const onnx::GraphProto graph = c.GraphOf(mean);
  CHECK(Ops(graph) == Names{"Identity"});
  CHECK(Inputs(graph.node(0)) == Names{"image"});
}

TEST_CASE("An op that ONNX has not in this form is named") {
  Conversion c;
  CHECK_THAT(c.ErrorOf(c.graph.AddNode("Elu", "elu", {c.image}, kFloat)), Contains("the op Elu (node elu)"));
  CHECK_THAT(c.ErrorOf(c.graph.AddNode("Transpose", "turned", {c.image, c.image}, kFloat)),
             Contains("node turned") && Contains("input 1 is not a constant"));
  CHECK_THAT(c.ErrorOf(c.Conv(c.image, c.graph.AddConst("filters", Tensor(DType::kFloat32, {1, 1, 3, 2})), "SAME")),
             Contains("node conv") && Contains("not a variable"));
  CHECK_THAT(c.ErrorOf(c.graph.AddNode("Reshape", "none", {c.image, c.Int32s("zero", {1}, {0})}, kFloat)),
             Contains("node none") && Contains("without elements"));
  CHECK_THAT(c.ErrorOf(c.graph.AddNode("FloorDiv", "quotient", {c.image, c.image}, kFloat)),
             Contains("floating-point"));
  const std::string wide = c.graph.AddNode("Conv2D", "wide", {c.image, c.Weight("filters2", {1, 1, 3, 2})},
                                           {{"T", TypeAttr(DType::kFloat32)},
                                            {"strides", IntsAttr({1, 1, 1, 1})},
                                            {"dilations", IntsAttr({1, 2, 2, 1})},
                                            {"padding", StringAttr("SAME")}});
  CHECK_THAT(c.ErrorOf(wide), Contains("node wide") && Contains("with dilations and padding SAME"));
  const std::string other = c.graph.AddPlaceholder("other", DType::kFloat32, {-1});
  CHECK(absl::IsInvalidArgument(c.Convert(other).status()));
}

}  // namespace
}  // namespace official::exporting
