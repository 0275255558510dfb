#include "utils/compute/ops/gradients/gradients.h"

#include <catch2/catch.hpp>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "utils/compute/graph/graph.h"
#include "utils/compute/ops/array/array.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/testing/op_test.h"

namespace official::compute {
namespace {

using testing::Doubles;

// y = x * x + x, so dy/dx = 2 x + 1: contributions of several uses are summed.
TEST_CASE("A value used more than once gets the sum of its gradients") {
  const testing::OpCase test{
      .op = op::Mul,
      .inputs = {testing::RandomTensor({7}, 3)},
      .build = [](absl::Span<const Value> in) { return std::vector<Value>{Add(Mul(in[0], in[0]), in[0])}; },
      .reference =
          [](const std::vector<Doubles>& in) {
            Doubles y;
            for (const double x : in[0]) y.push_back(x * x + x);
            return std::vector<Doubles>{y};
          },
  };
  testing::CheckForward(test);
  testing::CheckGradients(test);
}

TEST_CASE("There is no gradient where there is no path") {
  Graph graph;
  const Value x = graph.Input("x", {DType::kFloat32, {2}});
  const Value y = graph.Input("y", {DType::kFloat32, {2}});
  const std::vector<Value> gradients = Gradients(Relu(x), {x, y});
  CHECK(gradients[0]);
  CHECK(!gradients[1]);
}

TEST_CASE("A second derivative through an op that has no gradient is an error") {
  Graph graph;
  const Value x = graph.Input("x", {DType::kFloat32, {1}});
  const Value dx = Gradients(Mul(x, Tanh(x)), {x})[0];
  REQUIRE(graph.status().ok());
  CHECK(!Gradients(dx, {x})[0]);
  CHECK(graph.status() ==
        absl::UnimplementedError("the op TanhGrad (node TanhGrad, float32[1]) has no gradient, but the gradient of its "
                                 "input Tanh is needed; compute it with ops that have one, which docs/ops.md lists"));
}

TEST_CASE("No gradient flows through signs, comparisons and integers, which is no error") {
  Graph graph;
  const Value x = graph.Input("x", {DType::kFloat32, {2}});
  const Value positive = Greater(x, Neg(x));
  const Value one_hot = OneHot(Cast(positive, DType::kInt32), 2);
  CHECK(Gradients(Mul(Mul(x, Sign(x)), Mul(Cast(positive, DType::kFloat32), one_hot)), {x})[0]);
  CHECK(graph.status().ok());
}

TEST_CASE("The gradient of a table that is read twice stays sparse") {
  Graph graph;
  const Value table = graph.Variable({"table", {DType::kFloat32, {5, 2}}, Initializer::Ones()});
  const Value a = Gather(table, graph.Input("a", {DType::kInt32, {3}}));
  const Value b = Gather(table, graph.Input("b", {DType::kInt32, {4}}));
  const std::vector<Value> gradients =
      Gradients({a, b}, {graph.Input("da", a.type()), graph.Input("db", b.type())}, {table});
  REQUIRE(gradients[0].node()->Is(op::IndexedSlices));
  CHECK(gradients[0].type() == table.type());
  CHECK(gradients[0].node()->input(indexed_slices::kIndices).shape() == Shape({7}));
  CHECK(gradients[0].node()->input(indexed_slices::kRows).shape() == Shape({7, 2}));
}

}  // namespace
}  // namespace official::compute
