#include "utils/compute/layers/layers.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "utils/compute/kernel/device.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/gradients/gradients.h"
#include "utils/compute/ops/optimizer/optimizer.h"
#include "utils/compute/ops/reduction/reduction.h"
#include "utils/compute/program/program.h"

namespace official::compute {
namespace {

using Catch::Matchers::Contains;
using Variables = std::vector<std::pair<std::string, Shape>>;

Variables VariablesOf(const Graph& graph) {
  REQUIRE(graph.status().ok());
  Variables variables;
  for (const VariableSpec& spec : graph.variables()) variables.emplace_back(spec.name, spec.type.shape);
  return variables;
}

Initializer Twos(const Shape&) { return Initializer::Constant(2); }

std::vector<float> Evaluated(Value value) {
  const auto device = MakeDevice("cpu").value();
  VariableStore variables(*device);
  REQUIRE(variables.Create(*value.graph(), /*seed=*/1).ok());
  const auto program = Program::Compile(*value.graph(), {{}, {value}, {}}, *device, variables).value();
  REQUIRE(program->Run({}).ok());
  const Tensor result = program->Fetch(0).value();
  return {result.data<float>(), result.data<float>() + result.num_elements()};
}

// As in a graph of TensorFlow 1.
TEST_CASE("Layers without a name are numbered by kind, under the scope") {
  Graph graph;
  Layers layers(graph, DType::kFloat32, {.scope = "net/"});
  Value x = graph.Input("images", {DType::kFloat32, {2, 8, 8, 3}});
  x = layers.Conv2D(x, 4, {5, 5});
  x = layers.Conv2D(x, 6, {1, 1}, {.use_bias = false});
  x = layers.BatchNormalization(x, {.training = true});
  x = layers.Dense(x, 10);
  x = layers.Dense(x, 7);
  CHECK(x.shape() == Shape({2, 8, 8, 7}));
  CHECK(VariablesOf(graph) == Variables{{"net/conv2d/kernel", {5, 5, 3, 4}},
                                        {"net/conv2d/bias", {4}},
                                        {"net/conv2d_1/kernel", {1, 1, 4, 6}},
                                        {"net/batch_normalization/gamma", {6}},
                                        {"net/batch_normalization/beta", {6}},
                                        {"net/batch_normalization/moving_mean", {6}},
                                        {"net/batch_normalization/moving_variance", {6}},
                                        {"net/dense/kernel", {6, 10}},
                                        {"net/dense/bias", {10}},
                                        {"net/dense_1/kernel", {10, 7}},
                                        {"net/dense_1/bias", {7}}});
  REQUIRE(layers.moving_averages().size() == 2);
  CHECK(layers.moving_averages()[0].variable.node()->name() == "net/batch_normalization/moving_mean");
}

TEST_CASE("Layers of one name share their variables, and are not counted") {
  Graph graph;
  Layers layers(graph, DType::kFloat32);
  const Value x = graph.Input("x", {DType::kFloat32, {2, 3}});
  const DenseLayer layer{.name = "attention/q", .use_bias = false};
  layers.Dense(x, 4, layer);
  layers.Dense(x, 4, layer);
  layers.Dense(x, 5);
  layers.Variable("norm/scale", {3}, Initializer::Ones());
  CHECK(layers.Variable("norm/scale", {3}, Initializer::Ones()).node()->name() == "norm/scale");
  CHECK(VariablesOf(graph) ==
        Variables{{"attention/q/kernel", {3, 4}}, {"dense/kernel", {3, 5}}, {"dense/bias", {5}}, {"norm/scale", {3}}});
}

TEST_CASE("Variables for ops of several layers have the layers' names") {
  Graph graph;
  Layers layers(graph, DType::kFloat32);
  CHECK(layers.EmbeddingTable(20, 8).dtype() == DType::kFloat32);
  layers.EmbeddingTable(30, 8);
  layers.BuildDense(16, 4);
  const DenseWeights rating =
      layers.BuildDense(4, 1, {.name = "rating", .use_bias = false, .kernel_initializer = Initializer::LecunUniform});
  CHECK_FALSE(rating.bias);
  CHECK(graph.variable(*rating.kernel.node()).initializer.value == Initializer::LecunUniform({4, 1}).value);
  layers.BuildDense(4, 2);
  CHECK(VariablesOf(graph) == Variables{{"embedding/embeddings", {20, 8}},
                                        {"embedding_1/embeddings", {30, 8}},
                                        {"dense/kernel", {16, 4}},
                                        {"dense/bias", {4}},
                                        {"rating/kernel", {4, 1}},
                                        {"dense_1/kernel", {4, 2}},
                                        {"dense_1/bias", {2}}});
}

TEST_CASE("Dense multiplies the last dimension and activates") {
  Graph graph;
  Layers layers(graph, DType::kFloat32);
  const Value x = graph.Constant(Tensor::Of<float>({1, 2, 3}, {1, 2, 3, -1, -2, 1}));
  const Value sums = layers.Dense(x, 2, {.kernel_initializer = Twos});
  CHECK(sums.shape() == Shape({1, 2, 2}));
  CHECK(Evaluated(sums) == std::vector<float>{12, 12, -4, -4});
  CHECK(Evaluated(layers.Dense(x, 1, {.activation = Activation::kRelu, .kernel_initializer = Twos})) ==
        std::vector<float>{12, 0});
}

TEST_CASE("Variables are float32, the computation is of the type given") {
  Graph graph;
  Layers layers(graph, DType::kBFloat16);
  const Value x = graph.Input("x", {DType::kBFloat16, {2, 3}});
  CHECK(layers.Dense(x, 4).dtype() == DType::kBFloat16);
  CHECK(layers.Weight("weights", {5, 3}, Initializer::Normal(0.1)).dtype() == DType::kBFloat16);
  CHECK(layers.Variable("scale", {3}, Initializer::Ones()).dtype() == DType::kFloat32);
  for (const VariableSpec& spec : graph.variables()) CHECK(spec.type.dtype == DType::kFloat32);
}

TEST_CASE("A scalar, and a layer of a negative size, leave an error in the graph") {
  const auto error = [](const Shape& shape, auto build) {
    Graph graph;
    Layers layers(graph, DType::kFloat32);
    CHECK(!build(layers, graph.Input("x", {DType::kFloat32, shape})));
    CHECK(absl::IsInvalidArgument(graph.status()));
    CHECK(graph.variables().empty());
    return std::string(graph.status().message());
  };
  const std::string needs = ": needs x [..., C], got float32[]";
  CHECK(error({}, [](Layers& layers, Value x) { return layers.Dense(x, 3); }) == "Dense" + needs);
  CHECK(error({}, [](Layers& layers, Value x) { return layers.Conv2D(x, 3, {1, 1}); }) == "Conv2D" + needs);
  CHECK(error({}, [](Layers& layers, Value x) { return layers.BatchNormalization(x, {.training = true}); }) ==
        "BatchNormalization" + needs);

  CHECK_THAT(error({2, 3}, [](Layers& layers, Value x) { return layers.Dense(x, -1); }),
             Contains("Variable dense/kernel: the result would be float32[3,-1]"));
  CHECK_THAT(error({2, 4, 4, 3},
                   [](Layers& layers, Value x) {
                     return layers.Conv2D(x, -1, {5, 5});
                   }),
             Contains("Variable conv2d/kernel: the result would be float32[5,5,3,-1]"));
  CHECK_THAT(error({2}, [](Layers& layers, Value) { return layers.EmbeddingTable(-1, 3); }),
             Contains("Variable embedding/embeddings: the result would be float32[-1,3]"));
}

Value LeakyRelu(Layers&, Value x) { return Maximum(x, Mul(x, x.graph()->Constant(Tensor::Scalar(0.2f)))); }

Value PRelu(Layers& layers, Value x) {
  const Value slope = layers.Variable("slope", {x.shape().dim(-1)}, Initializer::Constant(0.25));
  return Select(Greater(x, x.graph()->Constant(Tensor::Scalar(0.0f))), x, Mul(x, slope));
}

// On CPUs the images between convolutions are channel-blocked, and so is what comparisons make of them.
TEST_CASE("A leaky ReLU or a PReLU between two convolutions trains") {
  const auto activation = GENERATE(&LeakyRelu, &PRelu);
  const bool fuse = GENERATE(true, false);
  Graph graph;
  Layers layers(graph, DType::kFloat32);
  const Value images = graph.Input("images", {DType::kFloat32, {2, 8, 8, 3}});
  Value x = activation(layers, layers.Conv2D(images, 16, {3, 3}));
  x = layers.Conv2D(x, 16, {3, 3});
  const Value loss = Mean(Square(x));
  std::vector<Value> variables;
  for (const VariableSpec& spec : graph.variables()) variables.push_back(graph.Variable(spec));
  const std::vector<Value> gradients = Gradients(loss, variables);
  std::vector<VariableGradient> updates;
  for (size_t i = 0; i < variables.size(); ++i) updates.push_back({variables[i], gradients[i]});
  const std::vector<Node*> update = GradientDescent(graph.Constant(Tensor::Scalar(0.1f)), updates);
  const auto device = MakeDevice("cpu").value();
  VariableStore store(*device);
  REQUIRE(store.Create(graph, /*seed=*/1).ok());
  const auto step = Program::Compile(graph, {{images}, {loss}, update}, *device, store, {.fuse = fuse}).value();
  Tensor batch(DType::kFloat32, images.shape());
  for (int64_t i = 0; i < batch.num_elements(); ++i) batch.data<float>()[i] = static_cast<float>(i % 7 - 3);
  std::vector<float> losses;
  for (int i = 0; i < 4; ++i) {
    REQUIRE(step->Run({batch}).ok());
    losses.push_back(step->Fetch(0).value().scalar<float>());
  }
  CHECK(std::is_sorted(losses.rbegin(), losses.rend()));
  CHECK(losses.back() < losses.front());
}

TEST_CASE("Given weights are variables in the type of the computation, and zeros at first") {
  Graph graph;
  Layers layers(graph, DType::kBFloat16, {.weights_are_given = true});
  layers.Dense(graph.Input("x", {DType::kBFloat16, {2, 3}}), 4);
  layers.Weight("weights", {5, 3}, Initializer::Normal(0.1));
  for (const VariableSpec& spec : graph.variables()) {
    CHECK(spec.type.dtype == DType::kBFloat16);
    CHECK(spec.initializer.kind == Initializer::Kind::kConstant);
    CHECK(spec.initializer.value == 0);
  }
  CHECK(layers.Variable("scale", {3}, Initializer::Ones()).dtype() == DType::kFloat32);
}

}  // namespace
}  // namespace official::compute
