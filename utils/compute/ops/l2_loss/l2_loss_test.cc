#include "utils/compute/ops/l2_loss/l2_loss.h"

#include <catch2/catch.hpp>
#include <vector>

#include "utils/compute/testing/op_test.h"

namespace official::compute {
namespace {

using testing::Doubles;
using testing::OpCase;
using testing::RandomTensor;

OpCase Case(const std::vector<Shape>& shapes) {
  OpCase test{.op = op::L2Loss,
              .inputs = {},
              .build = [](absl::Span<const Value> in) { return std::vector<Value>{L2Loss(in)}; },
              .reference =
                  [](const std::vector<Doubles>& in) {
                    double sum = 0;
                    for (const Doubles& x : in) {
                      for (const double v : x) sum += v * v / 2;
                    }
                    return std::vector<Doubles>{{sum}};
                  }};
  for (size_t i = 0; i < shapes.size(); ++i) test.inputs.push_back(RandomTensor(shapes[i], i));
  return test;
}

// Around the sizes of the pieces that are summed at a time, and without elements.
TEST_CASE("L2Loss is half the sum of squares of all its inputs") {
  testing::CheckForward(Case({{3}}));
  testing::CheckForward(Case({{2, 16384}, {}, {0, 4}, {1025}, {16385}, {3, 3, 64, 64}}));
}

TEST_CASE("The gradient of L2Loss is the input") { testing::CheckGradients(Case({{5}, {2, 3}, {}})); }

TEST_CASE("L2Loss refuses other types") {
  const absl::Status status = testing::BuildStatus(
      {{DType::kInt32, {2}}}, [](absl::Span<const Value> in) { return std::vector<Value>{L2Loss(in)}; });
  CHECK_THAT(std::string(status.message()), Catch::Contains("needs float32 inputs"));
}

}  // namespace
}  // namespace official::compute
