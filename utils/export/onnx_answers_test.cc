// An export computes what the trained model does, and the check finds what would not.

#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <memory>
#include <string>

#include "utils/compute/core/random.h"
#include "utils/compute/ops/array/array.h"
#include "utils/compute/ops/batch_norm/batch_norm.h"
#include "utils/compute/ops/conv/conv.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/matmul/matmul.h"
#include "utils/compute/ops/pooling/pooling.h"
#include "utils/compute/ops/reduction/reduction.h"
#include "utils/compute/ops/softmax/softmax.h"
#include "utils/compute/ops/top_k/top_k.h"
#include "utils/export/answers.h"
#include "utils/export/graph_converter.h"
#include "utils/export/onnx_check.h"
#include "utils/export/onnx_converter.h"

namespace official::exporting {
namespace {

using Catch::Matchers::Contains;
using compute::DType;
using compute::Padding;
using compute::Tensor;
using compute::Value;

// A network with every op that AddGraph converts: images and a number give classes and their probabilities.
class Network {
 public:
  Network() {
    model_.built.graph = std::make_unique<compute::Graph>();
    compute::Graph& graph = *model_.built.graph;
    const Value images = graph.Input("images", {DType::kFloat32, {1, 9, 9, 3}});
    const Value user = graph.Input("user", {DType::kInt32, {1}});

    Value x = compute::Conv2D(images, Weight("padded", {3, 3, 3, 8}),
                              {.stride = {2, 1}, .padding = Padding::kExplicit, .border = {1, 2, 0, 1}});
    x = compute::FusedBatchNormInference(x, Weight("gamma", {8}), Weight("beta", {8}), Weight("mean", {8}),
                                         Weight("variance", {8}), 0.1);
    x = compute::MaxPool(compute::Relu(x), {.window = {3, 2}, .stride = {2, 1}, .padding = Padding::kSame});
    const Value shortcut = compute::Conv2D(x, Weight("shortcut", {1, 1, 8, 4}), {.padding = Padding::kValid});
    x = compute::Conv2D(x, Weight("same", {3, 3, 8, 4}), {.padding = Padding::kSame});
    x = compute::Add(compute::Relu(compute::BiasAdd(x, Weight("bias", {4}))), shortcut);
    x = compute::Reshape(compute::Mean(x, {1, 2}, /*keep_dims=*/true), {1, 4});

    Value id = compute::Reshape(compute::Cast(user, DType::kFloat32), {1, 1});
    Value row = compute::Mul(compute::Gather(Weight("table", {2, 4}), user), x);
    row = compute::Concat({x, row, id}, 1);
    row = compute::Reshape(compute::Transpose(compute::Reshape(row, {1, 3, 3}), {0, 2, 1}), {1, 9});
    const Value hidden = compute::MatMul(row, Weight("hidden", {9, 5}));
    const Value logits =
        compute::BiasAdd(compute::MatMul(hidden, Weight("logits", {6, 5}), {.transpose_b = true}), Weight("last", {6}));
    const Value probabilities = compute::Softmax(logits), classes = compute::ArgMax(logits);
    REQUIRE(graph.status() == absl::OkStatus());

    model_.built.roots = {.feeds = {images, user}, .fetches = {probabilities, classes}, .targets = {}};
    model_.built.fetch_names = {"probabilities", "classes"};
    model_.inputs = {"image", "number"};
    GraphDefBuilder builder;
    const std::string image = builder.AddPlaceholder("image", DType::kFloat32, {-1, 9, 9, 3});
    const std::string number = builder.AddPlaceholder("number", DType::kInt32, {-1});
    const auto names = AddGraph({{images, image}, {user, number}}, {probabilities, classes}, builder).value();
    signature_ = {
        "predict",
        {{"image", {image, DType::kFloat32, {-1, 9, 9, 3}}}, {"number", {number, DType::kInt32, {-1}}}},
        {{"probabilities", {names[0], DType::kFloat32, {-1, 6}}}, {"classes", {names[1], DType::kInt64, {-1}}}}};
    answers_ = AnswersOf(model_, signature_, variables_).value();
    onnx_ = ConvertToOnnx(builder, signature_, variables_).value();
  }

  // What the check says of the export that `change` has spoiled.
  absl::Status Check(const std::function<void(onnx::GraphProto&)>& change = [](onnx::GraphProto&) {}) const {
    onnx::ModelProto model = onnx_;
    change(*model.mutable_graph());
    return CheckOnnxAnswers(model, answers_);
  }
  const onnx::GraphProto& onnx() const { return onnx_.graph(); }
  const Answers& answers() const { return answers_; }

 private:
  // Numbers in [0.05, 0.25), so that each variable counts for the result.
  Value Weight(const std::string& name, const compute::Shape& shape) {
    Tensor value(DType::kFloat32, shape);
    for (int64_t i = 0; i < value.num_elements(); ++i) {
      value.data<float>()[i] = 0.05F + static_cast<float>(compute::Philox(variables_.size(), 0, i)[0] % 1000) / 5000;
    }
    variables_.emplace(name, value);
    return model_.built.graph->Variable({name, value.type(), compute::Initializer::Zeros()});
  }

  TrainedModel model_;
  NamedTensors variables_;
  Signature signature_;
  Answers answers_;
  onnx::ModelProto onnx_;
};

onnx::NodeProto& NodeOf(onnx::GraphProto& graph, const std::string& op) {
  for (onnx::NodeProto& node : *graph.mutable_node()) {
    if (node.op_type() == op) return node;
  }
  FAIL("no node " << op);
  std::abort();
}

onnx::AttributeProto& AttributeOf(onnx::GraphProto& graph, const std::string& op, const std::string& name) {
  for (onnx::AttributeProto& attr : *NodeOf(graph, op).mutable_attribute()) {
    if (attr.name() == name) return attr;
  }
  FAIL("no attribute " << name << " of " << op);
  std::abort();
}

TEST_CASE("An export answers as the model does") {
  const Network network;
  CHECK(network.Check() == absl::OkStatus());
  CHECK(network.answers().inputs.at("image").shape() == compute::Shape({4, 9, 9, 3}));
  CHECK(network.answers().outputs.at("probabilities").shape() == compute::Shape({4, 6}));
  CHECK(network.answers().outputs.at("classes").shape() == compute::Shape({4}));
}

TEST_CASE("Another value of any variable is found") {
  const Network network;
  int spoiled = 0;
  for (int i = 0; i < network.onnx().initializer_size(); ++i) {
    const onnx::TensorProto& initializer = network.onnx().initializer(i);
    if (initializer.data_type() != onnx::TensorProto::FLOAT) continue;
    INFO(initializer.name());
    const absl::Status status = network.Check([&](onnx::GraphProto& graph) {
      std::string& bytes = *graph.mutable_initializer(i)->mutable_raw_data();
      for (size_t at = 3; at < bytes.size(); at += 4) bytes[at] ^= 1;  // the exponent: half, a quarter or more
    });
    CHECK(absl::IsInternal(status));
    CHECK_THAT(std::string(status.message()), Contains("does not answer as the trained one does"));
    ++spoiled;
  }
  CHECK(spoiled == 12);
}

TEST_CASE("Another attribute, input or op is found") {
  using Graph = onnx::GraphProto;
  const Network network;
  const auto refused = [&](const std::function<void(Graph&)>& change) {
    return absl::IsInternal(network.Check(change));
  };
  CHECK(refused([](Graph& g) { AttributeOf(g, "BatchNormalization", "epsilon").set_f(0.05F); }));
  CHECK(refused(
      [](Graph& g) { AttributeOf(g, "Conv", "pads").set_ints(0, 2), AttributeOf(g, "Conv", "pads").set_ints(2, 1); }));
  CHECK(refused([](Graph& g) { AttributeOf(g, "Conv", "strides").set_ints(1, 2); }));
  CHECK(refused([](Graph& g) { AttributeOf(g, "MaxPool", "kernel_shape").set_ints(0, 2); }));
  CHECK(refused([](Graph& g) { AttributeOf(g, "Gemm", "transB").set_i(0); }));
  CHECK(refused([](Graph& g) { AttributeOf(g, "Concat", "axis").set_i(0); }));
  CHECK(refused([](Graph& g) { NodeOf(g, "BatchNormalization").mutable_input()->SwapElements(1, 2); }));
  CHECK(refused([](Graph& g) { NodeOf(g, "Concat").mutable_input()->SwapElements(0, 1); }));
  CHECK(refused([](Graph& g) { NodeOf(g, "Mul").set_op_type("Add"); }));
  CHECK(refused([](Graph& g) { NodeOf(g, "Softmax").set_op_type("Identity"); }));
  CHECK(refused([](Graph& g) {
    // The transposition of a matrix, the only one that is not of images.
    for (onnx::NodeProto& node : *g.mutable_node()) {
      if (node.op_type() != "Transpose" || node.attribute(0).ints_size() != 3) continue;
      node.mutable_attribute(0)->set_ints(1, 1);
      node.mutable_attribute(0)->set_ints(2, 2);
    }
  }));
  const absl::Status unknown = network.Check([](Graph& g) { NodeOf(g, "Relu").set_op_type("Elu"); });
  CHECK(absl::IsUnimplemented(unknown));
  CHECK_THAT(std::string(unknown.message()), Contains("the ONNX op Elu (node "));
}

// Compares an output "y" of a model, of which a move of the inputs moves elements by `spread`, with that of an export.
absl::Status CompareFloats(const std::vector<float>& exported, const std::vector<float>& model, double spread = 0) {
  const auto size = static_cast<int64_t>(model.size());
  const Answers answers = {
      .inputs = {}, .outputs = {{"y", Tensor::Of<float>({size}, model)}}, .spread = {{"y", spread}}};
  return CheckAnswers(answers, [&](const std::map<std::string, Value>&, compute::Graph& graph) {
    return std::map<std::string, Value>{{"y", graph.Constant(Tensor::Of<float>({size}, exported))}};
  });
}

TEST_CASE("Numbers that are not finite have to be the same, and say nothing of the others") {
  const float nan = std::nanf(""), inf = HUGE_VALF;
  CHECK(CompareFloats({1, nan, inf, -inf}, {1, nan, inf, -inf}) == absl::OkStatus());
  CHECK(absl::IsInternal(CompareFloats({1, 2, inf, -inf}, {1, nan, inf, -inf})));
  CHECK(absl::IsInternal(CompareFloats({1, nan, -inf, -inf}, {1, nan, inf, -inf})));
  CHECK(absl::IsInternal(CompareFloats({1.1F, 1}, {1, inf})));
  CHECK(absl::IsInternal(CompareFloats({1.1F, inf}, {1, inf})));
  CHECK(absl::IsInternal(CompareFloats({nan, 1}, {1, 1})));
  CHECK(CompareFloats({0, 0}, {0, 0}) == absl::OkStatus());
  CHECK(absl::IsInternal(CompareFloats({0, 1e-30F}, {0, 0})));
}

TEST_CASE("Outputs that a millionth of the inputs moves may differ by ten times that") {
  CHECK(CompareFloats({1, 1.009F}, {1, 1}, 1e-3) == absl::OkStatus());
  CHECK(absl::IsInternal(CompareFloats({1, 1.011F}, {1, 1}, 1e-3)));
  const Network network;
  const double spread = network.answers().spread.at("probabilities");
  CHECK((spread > 0 && spread < 1e-5));
}

TEST_CASE("One class of four may be another, since two may be almost equal; more may not") {
  const Network network;
  const auto check = [&](int others) {
    Answers answers = network.answers();
    answers.outputs["classes"] = answers.outputs["classes"].Clone();
    for (int i = 0; i < others; ++i) answers.outputs["classes"].data<int64_t>()[i] += 1;
    return CheckAnswers(answers, [&](const std::map<std::string, Value>& feeds, compute::Graph& graph) {
      return std::map<std::string, Value>{{"classes", graph.Constant(network.answers().outputs.at("classes"))}};
    });
  };
  CHECK(check(1) == absl::OkStatus());
  CHECK_THAT(std::string(check(2).message()), Contains("of its output classes"));
}

}  // namespace
}  // namespace official::exporting
