#include "utils/compute/graph/graph.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "utils/compute/graph/op_def.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/testing/op_test.h"

namespace official::compute {
namespace {

using Catch::Matchers::Contains;

TEST_CASE("Types are known while building, and names are unique") {
  Graph graph;
  const Value x = graph.Input("x", {DType::kFloat32, {2, 1}});
  const Value y = graph.Input("y", {DType::kFloat32, {3}});
  CHECK(Add(x, y).type() == TensorType{DType::kFloat32, {2, 3}});
  CHECK(Add(x, y).node()->name() != Add(x, y).node()->name());
}

TEST_CASE("A number is added to a name until no other node has it") {
  Graph graph;
  const Value x = graph.Input("x", {DType::kFloat32, {2}});
  const Value variable = graph.Variable({"Tanh_1", x.type(), Initializer::Zeros()});
  CHECK(variable.node()->name() == "Tanh_1");
  CHECK(Tanh(x).node()->name() == "Tanh");
  CHECK(Tanh(x).node()->name() == "Tanh_2");
  CHECK(Tanh(x).node()->name() == "Tanh_3");
}

TEST_CASE("The first error sticks; what is made from it is invalid") {
  Graph graph;
  const Value x = graph.Input("x", {DType::kFloat32, {2}});
  const Value bad = Add(x, graph.Input("y", {DType::kFloat32, {3}}));
  CHECK(!bad);
  CHECK(!Relu(bad));
  CHECK_THAT(std::string(graph.status().message()), Contains("float32[2]") && Contains("float32[3]"));
}

TEST_CASE("A result with a size below 0, or of more bytes than int64 holds, is an error") {
  const auto error = [](auto build) {
    Graph graph;
    CHECK(!build(graph));
    return graph.status();
  };
  CHECK(error([](Graph& graph) {
          return graph.Input("x", {DType::kFloat32, {-1, 4}});
        }) ==
        absl::InvalidArgumentError("Input x: the result would be float32[-1,4]; sizes must be at least 0, and int64 "
                                   "must hold the bytes"));
  const auto broadcast = [](Graph& graph) { return BroadcastTo(graph.Constant(Tensor::Scalar(1.0f)), {-1}); };
  CHECK_THAT(std::string(error(broadcast).message()), Contains("BroadcastTo: the result would be float32[-1];"));
  // 2^61 elements of 4 bytes.
  const Shape large = {int64_t{1} << 30, int64_t{1} << 31};
  CHECK_THAT(std::string(error([&](Graph& graph) {
                           return graph.Input("x", {DType::kFloat32, large});
                         }).message()),
             Contains("the result would be float32[1073741824,2147483648];"));

  Graph graph;
  CHECK(!graph.Variable({"v", {DType::kFloat32, {3, -1}}, Initializer::Zeros()}));
  CHECK(graph.variables().empty());
  Graph fits;
  CHECK(fits.Input("x", {DType::kBool, large}));
  CHECK(fits.Input("none", {DType::kFloat32, {0, 4}}));
}

TEST_CASE("A variable is declared once; again with another type is an error") {
  Graph graph;
  const VariableSpec spec{"v", {DType::kFloat32, {2}}, Initializer::Zeros()};
  CHECK(graph.Variable(spec) == graph.Variable(spec));
  CHECK(graph.variables().size() == 1);
  CHECK(!graph.Variable({"v", {DType::kFloat32, {3}}, Initializer::Zeros()}));
  CHECK_THAT(std::string(graph.status().message()), Contains("float32[2]") && Contains("declared again"));
}

TEST_CASE("A variable with the name of another node is an error") {
  Graph graph;
  const Value x = graph.Input("features", {DType::kFloat32, {2}});
  Add(Add(x, x), x);
  const char* const name = GENERATE("features", "Add", "Add_1");
  CHECK(!graph.Variable({name, {DType::kFloat32, {2}}, Initializer::Zeros()}));
  CHECK(graph.status() ==
        absl::InvalidArgumentError(absl::StrCat(
            "variable ", name, " (float32[2]) has the name of an input or another node; rename the variable")));
  CHECK(graph.variables().empty());
}

TEST_CASE("Broadcasting follows NumPy") {
  CHECK(BroadcastShape({2, 1, 3}, {4, 1}).value() == Shape({2, 4, 3}));
  CHECK(BroadcastShape({}, {4}).value() == Shape({4}));
  CHECK(BroadcastShape({0, 3}, {1, 3}).value() == Shape({0, 3}));
  CHECK_FALSE(BroadcastShape({2}, {3}).ok());
}

// Glorot and Bengio: uniform in +-sqrt(6 / (fan_in + fan_out)), whose variance is a third of its square.
TEST_CASE("Initial values have the distribution, and depend on seed and name only") {
  const TensorType type{DType::kFloat32, {5, 5, 32, 64}};
  const Tensor kernel = InitialValue(Initializer::GlorotUniform(type.shape), type, "conv2d_1/kernel", 1);
  const double limit = std::sqrt(6.0 / (25 * 32 + 25 * 64));
  double sum = 0, squares = 0, largest = 0;
  for (const double v : testing::ToDoubles(kernel)) {
    sum += v;
    squares += v * v;
    largest = std::max(largest, std::abs(v));
  }
  const double n = static_cast<double>(kernel.num_elements());
  CHECK(sum / n == Approx(0).margin(4 * limit / std::sqrt(3 * n)));
  CHECK(squares / n == Approx(limit * limit / 3).epsilon(0.02));
  CHECK(largest <= limit);
  CHECK(largest > 0.99 * limit);
  CHECK(testing::ToDoubles(kernel) ==
        testing::ToDoubles(InitialValue(Initializer::GlorotUniform(type.shape), type, "conv2d_1/kernel", 1)));
  CHECK(testing::ToDoubles(kernel) !=
        testing::ToDoubles(InitialValue(Initializer::GlorotUniform(type.shape), type, "conv2d_1/kernel", 2)));
  CHECK(testing::ToDoubles(kernel) !=
        testing::ToDoubles(InitialValue(Initializer::GlorotUniform(type.shape), type, "conv2d/kernel", 1)));
}

// 12 inputs: sqrt(3 / 12).
TEST_CASE("LeCun's uniform numbers depend on the inputs only") {
  CHECK(Initializer::LecunUniform({12, 1}).value == Approx(0.5));
  CHECK(Initializer::LecunUniform({12, 50}).kind == Initializer::Kind::kUniform);
  CHECK(Initializer::LecunUniform({12, 50}).value == Approx(0.5));
}

TEST_CASE("Truncated normal numbers stay within two standard deviations") {
  const TensorType type{DType::kFloat32, {100, 50}};
  for (const double v : testing::ToDoubles(InitialValue(Initializer::VarianceScaling(type.shape), type, "w", 1))) {
    REQUIRE(std::abs(v) <= 2 * 0.1 + 1e-6);
  }
}

}  // namespace
}  // namespace official::compute
