// Fusions compute a node's op in another place, but not on the other side of an update of a variable that the op reads.

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <vector>

#include "utils/compute/core/tensor.h"
#include "utils/compute/graph/graph.h"
#include "utils/compute/kernel/device.h"
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

TEST_CASE("A gradient that reads a variable is computed behind its update, though the bias's comes before") {
  const auto device = MakeDevice("cpu").value();
  Graph graph;
  const Value images = graph.Variable({"images", {DType::kFloat32, {1, 2, 2, 2}}, Initializer::Ones()});
  const Value filters = graph.Input("filters", {DType::kFloat32, {1, 1, 2, 3}});
  const Value dy = graph.Input("dy", {DType::kFloat32, {1, 2, 2, 3}});
  const Value y = Conv2D(images, filters), bias_gradient = BiasAddGrad(dy);
  const std::vector<Node*> update = GradientDescent(graph.Constant(Tensor::Scalar(1.0f)), {{images, images}});
  const Value filter_gradient = Gradients({y}, {dy}, {filters})[0];
  VariableStore variables(*device);
  REQUIRE(variables.Create(graph, 1).ok());
  const auto program =
      Program::Compile(graph, {{filters, dy}, {bias_gradient, filter_gradient}, update}, *device, variables).value();
  Tensor ones(DType::kFloat32, dy.shape());
  std::fill_n(ones.data<float>(), dy.shape().num_elements(), 1.0f);
  REQUIRE(program->Run({Tensor(DType::kFloat32, filters.shape()), ones}).ok());
  CHECK(program->Fetch(0)->data<float>()[0] == 4);
  CHECK(program->Fetch(1)->data<float>()[0] == 0);  // the images are zero by then
}

}  // namespace
}  // namespace official::compute
