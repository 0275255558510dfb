#include "utils/compute/pjrt/hlo_builder.h"

#include <catch2/catch.hpp>
#include <string>

#include "utils/compute/graph/graph.h"

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
