// Fusions compute a node's op in another place, but not on the other side of an update of a variable that the op reads.

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <string>
#include <vector>

#include "utils/compute/core/tensor.h"
#include "utils/compute/graph/graph.h"
#include "utils/compute/kernel/device.h"
#include "utils/compute/ops/array/array.h"
#include "utils/compute/ops/batch_norm/batch_norm.h"
#include "utils/compute/ops/conv/conv.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/gradients/gradients.h"
#include "utils/compute/ops/matmul/matmul.h"
#include "utils/compute/ops/optimizer/optimizer.h"
#include "utils/compute/ops/pooling/pooling.h"
#include "utils/compute/ops/reduction/reduction.h"
#include "utils/compute/program/program.h"

namespace official::compute {
namespace {

// A layer of ones, whose ends come before and behind the update that makes its weights zero.
struct Layer {
  Shape images, weights;
  std::function<Value(Value x, Value w, Value bias)> begin;
  std::function<Value(Value y, Value bias)> end;
};

// The first element of the layer's output in a program with fusions.
float FirstOutput(const Layer& layer) {
  const auto device = MakeDevice("cpu").value();
  Graph graph;
  const Value w = graph.Variable({"w", {DType::kFloat32, layer.weights}, Initializer::Ones()});
  const Value x = graph.Input("x", {DType::kFloat32, layer.images});
  const Value bias = graph.Input("bias", {DType::kFloat32, {layer.weights.dims().back()}});
  const Value y = layer.begin(x, w, bias);
  const std::vector<Node*> update = GradientDescent(graph.Constant(Tensor::Scalar(1.0f)), {{w, w}});  // w - w
  const Value result = layer.end(y, bias);
  VariableStore variables(*device);
  REQUIRE(variables.Create(graph, 1).ok());
  const auto program = Program::Compile(graph, {{x, bias}, {result}, update}, *device, variables).value();
  Tensor ones(DType::kFloat32, layer.images);
  std::fill_n(ones.data<float>(), layer.images.num_elements(), 1.0f);
  REQUIRE(program->Run({ones, Tensor(DType::kFloat32, bias.shape())}).ok());
  CHECK(variables.Read("w")->data<float>()[0] == 0);
  return program->Fetch(0)->data<float>()[0];
}

TEST_CASE("What a variable is read for is computed before its update, though a bias or a pool comes later") {
  const auto matmul = [](Value x, Value w, Value) { return MatMul(x, w); };
  const auto conv = [](Value x, Value w, Value) { return Conv2D(x, w); };
  const auto relu_of_conv = [](Value x, Value w, Value bias) { return Relu(BiasAdd(Conv2D(x, w), bias)); };
  const auto add_bias = [](Value y, Value bias) { return BiasAdd(y, bias); };
  const auto max_pool = [](Value y, Value) { return MaxPool(y); };
  CHECK(FirstOutput({{4, 2}, {2, 3}, matmul, add_bias}) == 2);
  CHECK(FirstOutput({{1, 2, 2, 2}, {1, 1, 2, 3}, conv, add_bias}) == 2);
  CHECK(FirstOutput({{1, 4, 4, 16}, {3, 3, 16, 16}, relu_of_conv, max_pool}) == 9 * 16);
}

// The first elements of `values` in a program with fusions and these updates, whose feeds are ones.
std::vector<float> FirstElements(const Graph& graph, const std::vector<Value>& feeds, const std::vector<Value>& values,
                                 const std::vector<Node*>& updates) {
  const auto device = MakeDevice("cpu").value();
  VariableStore variables(*device);
  REQUIRE(variables.Create(graph, 1).ok());
  const auto program = Program::Compile(graph, {feeds, values, updates}, *device, variables).value();
  std::vector<Tensor> ones;
  for (const Value& feed : feeds) {
    std::fill_n(ones.emplace_back(feed.type()).data<float>(), feed.shape().num_elements(), 1.0f);
  }
  REQUIRE(program->Run(ones).ok());
  std::vector<float> elements;
  for (size_t i = 0; i < values.size(); ++i) {
    elements.push_back(program->Fetch(static_cast<int>(i))->data<float>()[0]);
  }
  return elements;
}

Value VariableOfOnes(Graph& graph, const std::string& name, const Shape& shape) {
  return graph.Variable({name, {DType::kFloat32, shape}, Initializer::Ones()});
}

// The update that makes variables zero.
std::vector<Node*> SetToZero(const std::vector<Value>& variables) {
  std::vector<VariableGradient> gradients;
  for (const Value& v : variables) gradients.push_back({v, v});
  return GradientDescent(variables[0].graph()->Constant(Tensor::Scalar(1.0f)), gradients);
}

TEST_CASE("A gradient that reads a variable is computed behind its update, though the bias's comes before") {
  const int64_t channels = GENERATE(2, 16);  // with 16 the images are reordered
  Graph graph;
  const Value images = VariableOfOnes(graph, "images", {1, 2, 2, channels});
  const Value filters = graph.Input("filters", {DType::kFloat32, {1, 1, channels, channels}});
  const Value dy = graph.Input("dy", images.type());
  const Value y = Conv2D(images, filters), bias_gradient = BiasAddGrad(dy);
  const std::vector<Node*> update = SetToZero({images});
  const Value filter_gradient = Gradients({y}, {dy}, {filters})[0];
  CHECK(FirstElements(graph, {filters, dy}, {y, bias_gradient, filter_gradient}, update) ==
        std::vector<float>{static_cast<float>(channels), 4, 0});
}

TEST_CASE("Images of a variable are reordered again behind its update") {
  const bool is_view = GENERATE(false, true);
  Graph graph;
  const Value variable = VariableOfOnes(graph, "images", is_view ? Shape{4, 16} : Shape{1, 2, 2, 16});
  const Value images = is_view ? Reshape(variable, {1, 2, 2, 16}) : variable;
  const Value filters = graph.Input("filters", {DType::kFloat32, {1, 1, 16, 16}});
  const Value before = Conv2D(images, filters);
  const std::vector<Node*> update = SetToZero({variable});
  const Value after = Conv2D(images, filters);
  CHECK(FirstElements(graph, {filters}, {before, after}, update) == std::vector<float>{16, 0});
}

TEST_CASE("A normalization is not computed again behind an update of what it has read") {
  const bool has_relu = GENERATE(false, true);
  Graph graph;
  const Value gamma = VariableOfOnes(graph, "gamma", {16}), beta = VariableOfOnes(graph, "beta", {16});
  const Value x = graph.Input("x", {DType::kFloat32, {2, 4, 4, 16}});
  const Value filters = graph.Input("filters", {DType::kFloat32, {1, 1, 16, 16}});
  const Value normalized = FusedBatchNorm(x, gamma, beta, 1e-3).y;  // beta
  const Value y = Conv2D(has_relu ? Relu(normalized) : normalized, filters);
  const Value dy = graph.Input("dy", y.type());
  const std::vector<Node*> update = SetToZero({gamma, beta});
  const std::vector<Value> gradients = Gradients({y}, {dy}, {filters, beta});
  CHECK(FirstElements(graph, {x, filters, dy}, gradients, update) == std::vector<float>{2 * 4 * 4, 2 * 4 * 4 * 16});
}

TEST_CASE("What is added to a normalization or to its gradient is read behind its update") {
  Graph graph;
  const Value gamma = VariableOfOnes(graph, "gamma", {16}), beta = VariableOfOnes(graph, "beta", {16});
  const Value x = graph.Input("x", {DType::kFloat32, {2, 4, 4, 16}}), dy = graph.Input("dy", x.type());
  const Value addend = VariableOfOnes(graph, "addend", x.shape());
  const Value y = FusedBatchNorm(x, gamma, beta, 1e-3).y;  // beta
  const Value dx = Gradients({y}, {dy}, {x})[0];           // zero, as dy is the same for all x
  const std::vector<Node*> update = SetToZero({addend});
  CHECK(FirstElements(graph, {x, dy}, {Add(y, addend), Add(dx, addend)}, update) == std::vector<float>{1, 0});
}

}  // namespace
}  // namespace official::compute
