#include "utils/export/graph_converter.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>

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

using Catch::Matchers::Contains;
using compute::DType;
using compute::Padding;
using compute::Tensor;
using compute::TensorType;
using compute::Value;
using Names = std::vector<std::string>;
using Ints = std::vector<int64_t>;

// A graph with an Input for one example, and what it becomes.
struct Conversion {
  Value Feed(compute::Shape shape) {
    feed = graph.Input("features", {DType::kFloat32, std::move(shape)});
    return feed;
  }
  Value Weight(const std::string& name, compute::Shape shape) {
    return graph.Variable({name, {DType::kFloat32, std::move(shape)}, compute::Initializer::Zeros()});
  }
  absl::StatusOr<Names> Convert(const std::vector<Value>& fetches) {
    REQUIRE(graph.status() == absl::OkStatus());
    return AddGraph({{feed, "input"}}, fetches, out);
  }
  // The node that stands for the value.
  tensorflow::NodeDef NodeOf(Value value) { return NodeCalled(Convert({value}).value()[0]); }
  std::string ErrorOf(Value value) {
    const absl::Status status = Convert({value}).status();
    CHECK(absl::IsUnimplemented(status));
    return std::string(status.message());
  }

  tensorflow::NodeDef NodeCalled(const std::string& name) const {
    for (const tensorflow::NodeDef& node : out.graph_def().node()) {
      if (node.name() == name) return node;
    }
    FAIL("no node " << name);
    std::abort();
  }
  // The numbers of the int32 constant that is input `i`.
  std::vector<int32_t> IntsOfInput(const tensorflow::NodeDef& node, int i) const {
    const tensorflow::TensorProto tensor = NodeCalled(node.input(i)).attr().at("value").tensor();
    REQUIRE(tensor.dtype() == tensorflow::DT_INT32);
    std::vector<int32_t> values(tensor.tensor_content().size() / sizeof(int32_t));
    std::memcpy(values.data(), tensor.tensor_content().data(), tensor.tensor_content().size());
    return values;
  }

  compute::Graph graph;
  Value feed;
  GraphDefBuilder out;
};

Ints IntsOf(const tensorflow::AttrValue& attr) { return Ints(attr.list().i().begin(), attr.list().i().end()); }
Names Inputs(const tensorflow::NodeDef& node) { return Names(node.input().begin(), node.input().end()); }

using Int32s = std::vector<int32_t>;

TEST_CASE("A convolution reads the feed's node and the variable, in TensorFlow's terms") {
  Conversion c;
  const Value y = compute::Conv2D(c.Feed({1, 8, 8, 3}), c.Weight("conv2d/kernel", {3, 5, 3, 4}), {.stride = {1, 2}});
  const tensorflow::NodeDef node = c.NodeOf(y);
  CHECK(node.op() == "Conv2D");
  CHECK(Inputs(node) == Names{"input", "conv2d/kernel/Read/ReadVariableOp"});
  CHECK(IntsOf(node.attr().at("strides")) == Ints{1, 1, 2, 1});
  CHECK(IntsOf(node.attr().at("dilations")) == Ints{1, 1, 1, 1});
  CHECK(node.attr().at("padding").s() == "SAME");
  CHECK(node.attr().at("T").type() == tensorflow::DT_FLOAT);
  REQUIRE(c.out.variables().size() == 1);
  CHECK(c.out.variables()[0].type == TensorType{DType::kFloat32, {3, 5, 3, 4}});
}

TEST_CASE("Explicit padding of a convolution becomes a node of its own") {
  Conversion c;
  const Value y = compute::Conv2D(c.Feed({1, 8, 8, 3}), c.Weight("kernel", {3, 3, 3, 4}),
                                  {.padding = Padding::kExplicit, .border = {1, 2, 3, 4}});
  const tensorflow::NodeDef node = c.NodeOf(y);
  CHECK(node.attr().at("padding").s() == "VALID");
  const tensorflow::NodeDef pad = c.NodeCalled(node.input(0));
  CHECK(pad.op() == "Pad");
  CHECK(pad.input(0) == "input");
  CHECK(c.IntsOfInput(pad, 1) == Int32s{0, 0, 1, 2, 3, 4, 0, 0});
  CHECK(c.NodeCalled(pad.input(1)).attr().at("value").tensor().tensor_shape().dim(0).size() == 4);
}

TEST_CASE("The batch is free where a value depends on the feed, and only there") {
  Conversion c;
  const Value x = compute::Reshape(c.Feed({1, 6}), {1, 3, 2});
  const Value constant = compute::Reshape(c.graph.Constant(Tensor::Of<float>({2}, {1, 2})), {1, 1, 2});
  const tensorflow::NodeDef sum = c.NodeOf(compute::Add(x, constant));
  CHECK(sum.op() == "Add");
  CHECK(c.IntsOfInput(c.NodeCalled(sum.input(0)), 1) == Int32s{-1, 3, 2});
  CHECK(c.IntsOfInput(c.NodeCalled(sum.input(1)), 1) == Int32s{1, 1, 2});
}

TEST_CASE("Pools, normalization, means and transpositions keep their parameters") {
  Conversion c;
  const Value x = c.Feed({1, 8, 6, 4});
  const tensorflow::NodeDef pool =
      c.NodeOf(compute::MaxPool(x, {.window = {3, 2}, .stride = {2, 1}, .padding = Padding::kSame}));
  CHECK(IntsOf(pool.attr().at("ksize")) == Ints{1, 3, 2, 1});
  CHECK(IntsOf(pool.attr().at("strides")) == Ints{1, 2, 1, 1});
  CHECK(pool.attr().at("padding").s() == "SAME");

  const tensorflow::NodeDef norm = c.NodeOf(compute::FusedBatchNormInference(
      x, c.Weight("gamma", {4}), c.Weight("beta", {4}), c.Weight("mean", {4}), c.Weight("variance", {4}), 1e-5));
  CHECK(norm.op() == "FusedBatchNorm");
  CHECK(norm.input(1) == "gamma/Read/ReadVariableOp");
  CHECK(norm.input(4) == "variance/Read/ReadVariableOp");
  CHECK(norm.attr().at("epsilon").f() == 1e-5f);
  CHECK(norm.attr().at("is_training").value_case() == tensorflow::AttrValue::kB);
  CHECK_FALSE(norm.attr().at("is_training").b());

  const tensorflow::NodeDef mean = c.NodeOf(compute::Mean(x, {1, -2}, /*keep_dims=*/true));
  CHECK(c.IntsOfInput(mean, 1) == Int32s{1, 2});
  CHECK(mean.attr().at("keep_dims").b());

  const tensorflow::NodeDef transposed = c.NodeOf(compute::Transpose(x, {0, 3, 1, 2}));
  CHECK(c.IntsOfInput(transposed, 1) == Int32s{0, 3, 1, 2});
}

TEST_CASE("Classification: product, bias, activation, classes and probabilities") {
  Conversion c;
  const Value product = compute::MatMul(c.Feed({1, 6}), c.Weight("kernel", {3, 6}), {.transpose_b = true});
  const Value logits = compute::Relu(compute::BiasAdd(product, c.Weight("bias", {3})));
  const Value halves = compute::Mul(logits, c.graph.Constant(Tensor::Scalar(0.5f)));
  const Names names =
      c.Convert({compute::ArgMax(logits), compute::Softmax(halves), compute::Cast(logits, DType::kInt32)}).value();

  const tensorflow::NodeDef classes = c.NodeCalled(names[0]);
  CHECK(classes.op() == "ArgMax");
  CHECK(classes.attr().at("output_type").type() == tensorflow::DT_INT64);
  CHECK(c.IntsOfInput(classes, 1) == Int32s{1});
  const tensorflow::NodeDef relu = c.NodeCalled(classes.input(0));
  CHECK(relu.op() == "Relu");
  const tensorflow::NodeDef bias = c.NodeCalled(relu.input(0));
  CHECK(bias.op() == "BiasAdd");
  CHECK(bias.input(1) == "bias/Read/ReadVariableOp");
  CHECK(c.NodeCalled(bias.input(0)).attr().at("transpose_b").b());
  CHECK_FALSE(c.NodeCalled(bias.input(0)).attr().at("transpose_a").b());

  const tensorflow::NodeDef probabilities = c.NodeCalled(names[1]);
  CHECK(probabilities.op() == "Softmax");
  CHECK(c.NodeCalled(probabilities.input(0)).op() == "Mul");
  const tensorflow::NodeDef cast = c.NodeCalled(names[2]);
  CHECK(cast.attr().at("SrcT").type() == tensorflow::DT_FLOAT);
  CHECK(cast.attr().at("DstT").type() == tensorflow::DT_INT32);
}

TEST_CASE("Embeddings: rows gathered by the feed's ids, side by side") {
  Conversion c;
  c.feed = c.graph.Input("features", {DType::kInt32, {1}});
  const Value rows = compute::Gather(c.Weight("table", {7, 4}), c.feed);
  const tensorflow::NodeDef joined = c.NodeOf(compute::Concat({rows, compute::Relu(rows)}, -1));
  CHECK(joined.op() == "ConcatV2");
  CHECK(joined.attr().at("N").i() == 2);
  CHECK(joined.attr().at("Tidx").type() == tensorflow::DT_INT32);
  CHECK(c.IntsOfInput(joined, 2) == Int32s{1});

  const tensorflow::NodeDef gathered = c.NodeCalled(joined.input(0));
  CHECK(gathered.op() == "GatherV2");
  CHECK(gathered.input(0) == "table/Read/ReadVariableOp");
  CHECK(gathered.input(1) == "input");
  CHECK(c.IntsOfInput(gathered, 2) == Int32s{0});
  CHECK(gathered.attr().at("Tparams").type() == tensorflow::DT_FLOAT);
  CHECK(gathered.attr().at("Tindices").type() == tensorflow::DT_INT32);
}

TEST_CASE("Nodes that no fetch needs are left out") {
  Conversion c;
  const Value x = c.Feed({1, 6});
  compute::Relu(c.Weight("unused", {6}));
  c.NodeOf(compute::Relu(x));
  CHECK(c.out.graph_def().node_size() == 1);
  CHECK(c.out.variables().empty());
}

TEST_CASE("What cannot be exported is named") {
  Conversion c;
  const Value x = c.Feed({1, 4, 4, 2});
  const Value flat = compute::Reshape(x, {1, 32});
  CHECK_THAT(c.ErrorOf(compute::Tanh(x)), Contains("the op Tanh (node Tanh) cannot be exported"));
  CHECK_THAT(c.ErrorOf(compute::Relu(compute::Sqrt(x))), Contains("Sqrt"));
  CHECK_THAT(c.ErrorOf(compute::MaxPool(x, {.padding = Padding::kExplicit, .border = {1, 1, 1, 1}})),
             Contains("MaxPool") && Contains("SAME"));
  CHECK_THAT(c.ErrorOf(compute::MaxPool(x).node()->output(1)), Contains("its output 1"));
  CHECK_THAT(c.ErrorOf(compute::MatMul(x, x, {.transpose_b = true})), Contains("more than two dimensions"));

  const std::string moves = "does not keep the batch in dimension 0";
  CHECK_THAT(c.ErrorOf(compute::Transpose(x, {1, 0, 2, 3})), Contains("Transpose") && Contains(moves));
  CHECK_THAT(c.ErrorOf(compute::Mean(x)), Contains(moves));
  CHECK_THAT(c.ErrorOf(compute::Reshape(x, {32})), Contains(moves));
  CHECK_THAT(c.ErrorOf(compute::MatMul(flat, c.Weight("w", {1, 3}), {.transpose_a = true})), Contains(moves));
  CHECK_THAT(c.ErrorOf(compute::MatMul(c.Weight("v", {3, 1}), flat)), Contains(moves));
  CHECK_THAT(c.ErrorOf(compute::Add(flat, x.graph()->Constant(Tensor(DType::kFloat32, {2, 1, 1})))), Contains(moves));

  CHECK_THAT(c.ErrorOf(compute::Concat({flat, flat}, 0)), Contains("Concat") && Contains(moves));
  CHECK_THAT(c.ErrorOf(compute::Concat({flat, c.Weight("u", {1, 3})}, 1)), Contains(moves));
  CHECK_THAT(c.ErrorOf(compute::Gather(flat, x.graph()->Constant(Tensor(DType::kInt32, {2})))), Contains(moves));

  const absl::Status status = c.Convert({c.graph.Input("labels", {DType::kInt32, {1}})}).status();
  CHECK(absl::IsInvalidArgument(status));
  CHECK_THAT(std::string(status.message()), Contains("labels"));
}

}  // namespace
}  // namespace official::exporting
