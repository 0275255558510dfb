#include "utils/compute/pjrt/hlo_builder.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "utils/compute/graph/graph.h"
#include "utils/compute/pjrt/hlo_program.h"

namespace official::compute {
namespace {

TEST_CASE("A module takes the buffer of the variable that it updates, unless an earlier run has failed") {
  Graph graph;
  const Value x = graph.Input("x", {DType::kBFloat16, {2, 3}});
  const Value v = graph.Variable({"v", {DType::kFloat32, {2, 3}}, Initializer::Zeros()});
  HloBuilder hlo({x, v});
  hlo.Assign(v, hlo.Add(hlo.In(v), hlo.InFloat(x)));
  CHECK(hlo.updated() == std::vector<int>{1});
  CHECK(hlo.Module({x}) == R"(module @graph {
  func.func public @main(%arg0: tensor<2x3xbf16>, %arg1: tensor<2x3xf32> {tf.aliasing_output = 1 : i32}, %error: tensor<4xi64>) -> (tensor<2x3xbf16>, tensor<2x3xf32>, tensor<4xi64>) {
    %0 = "stablehlo.convert"(%arg0) : (tensor<2x3xbf16>) -> tensor<2x3xf32>
    %1 = "stablehlo.add"(%arg1, %0) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
    %2 = "stablehlo.slice"(%error) {start_indices = array<i64: 0>, limit_indices = array<i64: 1>, strides = array<i64: 1>} : (tensor<4xi64>) -> tensor<1xi64>
    %3 = "stablehlo.reshape"(%2) : (tensor<1xi64>) -> tensor<i64>
    %4 = "stablehlo.constant"() {value = dense<0> : tensor<i64>} : () -> tensor<i64>
    %5 = "stablehlo.compare"(%3, %4) {comparison_direction = #stablehlo<comparison_direction LT>, compare_type = #stablehlo<comparison_type SIGNED>} : (tensor<i64>, tensor<i64>) -> tensor<i1>
    %6 = "stablehlo.select"(%5, %1, %arg1) : (tensor<i1>, tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
    "func.return"(%arg0, %6, %error) : (tensor<2x3xbf16>, tensor<2x3xf32>, tensor<4xi64>) -> ()
  }
}
)");
}

TEST_CASE("Values that are summed over devices together are one op") {
  Graph graph;
  const Value a = graph.Input("a", {DType::kFloat32, {2}}), b = graph.Input("b", {DType::kFloat32, {3, 4}});
  HloBuilder hlo({a, b});
  CHECK_FALSE(hlo.sums_over_devices());
  const std::vector<HloValue> sums = hlo.SumOverDevices({hlo.In(a), hlo.In(b)});
  CHECK(hlo.sums_over_devices());
  REQUIRE(sums.size() == 2);
  CHECK(sums[0].name == "%0#0");
  CHECK(sums[1].name == "%0#1");
  CHECK(sums[1].shape() == Shape({3, 4}));
  CHECK_THAT(hlo.Module({}), Catch::Contains(R"(
    %0:2 = "stablehlo.all_reduce"(%arg0, %arg1) ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %c = "stablehlo.add"(%a, %b) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%c) : (tensor<f32>) -> ()
    }) {replica_groups = dense<> : tensor<0x0xi64>} : (tensor<2xf32>, tensor<3x4xf32>) -> (tensor<2xf32>, tensor<3x4xf32>)
)"));
}

TEST_CASE("A barrier has the types of its values") {
  Graph graph;
  const Value a = graph.Input("a", {DType::kFloat32, {2}}), b = graph.Input("b", {DType::kInt64, {3}});
  HloBuilder hlo({a, b});
  const std::vector<HloValue> same = hlo.Barrier({hlo.In(a), hlo.In(b)});
  REQUIRE(same.size() == 2);
  CHECK(same[1].type == HloType{hlo::kI64, {3}});
  CHECK_THAT(hlo.Module({}),
             Catch::Contains("%0:2 = \"stablehlo.optimization_barrier\"(%arg0, %arg1) : (tensor<2xf32>, "
                             "tensor<3xi64>) -> (tensor<2xf32>, tensor<3xi64>)"));
}

TEST_CASE("Sums are added up in float64, but for devices without it") {
  Graph graph;
  const Value x = graph.Input("x", {DType::kFloat32, {2, 3}});
  const auto module = [&](const HloOptions& options) {
    HloBuilder hlo({x}, options);
    CHECK(hlo.Sum(hlo.In(x), {0}).type == HloType{hlo::kF32, {3}});
    return hlo.Module({});
  };
  CHECK_THAT(module({}), Catch::Contains("tensor<f64>) -> tensor<3xf64>"));
  CHECK_THAT(module({.has_64_bits = false}),
             Catch::Contains("tensor<f32>) -> tensor<3xf32>") && !Catch::Contains("f64"));
  CHECK(HloOptionsFor("cpu").has_64_bits);
  CHECK_FALSE(HloOptionsFor("tpu").has_64_bits);
}

// One result of each, by its op and type.
TEST_CASE("Constants are written without loss") {
  Graph graph;
  HloBuilder hlo({});
  const auto line = [&](const HloValue& value) {
    const std::string text = hlo.Module({});
    const size_t at = text.find(value.name + " = ") + value.name.size() + 3;
    return text.substr(at, text.find('\n', at) - at);
  };
  CHECK(line(hlo.Splat(0.1, {hlo::kF32, {}})) ==
        R"("stablehlo.constant"() {value = dense<0x3DCCCCCD> : tensor<f32>} : () -> tensor<f32>)");
  CHECK(line(hlo.Splat(-1.0 / 0.0, {"bf16", {2}})) ==
        R"("stablehlo.constant"() {value = dense<0xFF80> : tensor<2xbf16>} : () -> tensor<2xbf16>)");
  CHECK(line(hlo.Splat(0xCD9E8D57, {hlo::kUi64, {}})) ==
        R"("stablehlo.constant"() {value = dense<3449720151> : tensor<ui64>} : () -> tensor<ui64>)");
  CHECK(line(hlo.Splat(1, {hlo::kF32, {0, 3}})) ==
        R"("stablehlo.constant"() {value = dense<> : tensor<0x3xf32>} : () -> tensor<0x3xf32>)");
  CHECK(line(hlo.Constant(Tensor::Of<float>({2}, {1.0f, -2.0f}))) ==
        R"("stablehlo.constant"() {value = dense<"0x0000803F000000C0"> : tensor<2xf32>} : () -> tensor<2xf32>)");
  CHECK(line(hlo.Constant(Tensor::Of<bool>({2}, {true, false}))) ==
        R"("stablehlo.constant"() {value = dense<[true, false]> : tensor<2xi1>} : () -> tensor<2xi1>)");
}

}  // namespace
}  // namespace official::compute
