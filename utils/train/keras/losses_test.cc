#include "utils/train/keras/losses.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "utils/compute/ops/gradients/gradients.h"
#include "utils/compute/testing/op_test.h"
#include "utils/distribute/custom_loop/current_strategy.h"

namespace official::keras {
namespace {

using compute::DType;
using compute::Tensor;
using compute::Value;
using compute::testing::Doubles;

Tensor Matrix(const std::vector<float>& values, int64_t rows) {
  return Tensor::Of<float>({rows, static_cast<int64_t>(values.size()) / rows}, absl::MakeConstSpan(values));
}

// The loss, and its gradient with respect to the outputs.
std::vector<Doubles> LossOf(const LossFn& loss, const Tensor& labels, const Tensor& outputs) {
  std::vector<Doubles> results;
  for (const Tensor& result : compute::testing::RunOnCpu({labels, outputs}, [&](absl::Span<const Value> in) {
         const Value value = loss(in[0], in[1]);
         return std::vector<Value>{value, compute::Gradients(value, {in[1]})[0]};
       })) {
    results.push_back(compute::testing::ToDoubles(result));
  }
  return results;
}

void CheckNear(const Doubles& values, const Doubles& expected) {
  REQUIRE(values.size() == expected.size());
  for (size_t i = 0; i < values.size(); ++i) CHECK(values[i] == Approx(expected[i]).epsilon(1e-6).margin(1e-7));
}

// Expected: the formula in doubles.
TEST_CASE("BinaryCrossentropy of logits, small, large and zero, and of soft labels") {
  const Tensor logits = Matrix({0, 2, -3, 30, -40, 0.5f}, 3), labels = Matrix({1, 0.25f, 0, 1, 1, 0.5f}, 3);
  const auto mean = LossOf(BinaryCrossentropy(), labels, logits);
  CheckNear(mean[0], {7.182123254559477});
  CheckNear(mean[1], {-0.08333333333333333, 0.10513284632964705, 0.00790431219626113, 0, -0.16666666666666666,
                      0.020409888533642433});
  const auto each = LossOf(BinaryCrossentropy(Reduction::kNone), labels, logits);
  CheckNear(each[0], {1.1600375958014588, 0.02429367578691782, 20.362038492090054});
  for (size_t i = 0; i < 6; ++i) CHECK(each[1][i] == Approx(3 * mean[1][i]).margin(1e-7));
}

TEST_CASE("Without reduction each example has a loss, the mean of which is the loss of the batch") {
  const Tensor outputs = Matrix({1, 2, 0.5f, 1, 0, 1}, 3), labels = Matrix({0, 0, 1, 1, 0, 3}, 3);
  CheckNear(LossOf(MeanSquaredError(Reduction::kNone), labels, outputs)[0], {2.5, 0.125, 2});
  CheckNear(LossOf(MeanSquaredError(), labels, outputs)[0], {4.625 / 3});
  const Tensor classes = Tensor::Of<int32_t>({3}, {0, 1, 1});
  const Doubles of_classes = {std::log1p(std::exp(1.0)), std::log1p(std::exp(-0.5)), std::log1p(std::exp(-1.0))};
  CheckNear(LossOf(SparseCategoricalCrossentropy(Reduction::kNone), classes, outputs)[0], of_classes);
  CheckNear(LossOf(SparseCategoricalCrossentropy(), classes, outputs)[0],
            {(of_classes[0] + of_classes[1] + of_classes[2]) / 3});
}

// Expected: by hand.
TEST_CASE("Labels and outputs that differ in a last dimension of size 1 are compared example by example, as in Keras") {
  const Tensor labels = Tensor::Of<float>({3}, {0, 2, 1}), outputs = Matrix({1, 2, 0.5f}, 3);
  const auto mean = LossOf(MeanSquaredError(), labels, outputs);
  CheckNear(mean[0], {1.25 / 3});
  CheckNear(mean[1], {2.0 / 3, 0, -1.0 / 3});
  CheckNear(LossOf(MeanSquaredError(Reduction::kNone), labels, outputs)[0], {1, 0, 0.25});
  CheckNear(LossOf(MeanSquaredError(Reduction::kNone), outputs, labels)[0], {1, 0, 0.25});
  const Tensor zeros = Tensor::Of<float>({3}, {0, 0, 0});
  CheckNear(LossOf(BinaryCrossentropy(Reduction::kNone), zeros, outputs)[0],
            {std::log1p(std::exp(1.0)), std::log1p(std::exp(2.0)), std::log1p(std::exp(0.5))});
  const Tensor pairs = Matrix({1, 2, 3, 4}, 2), deep = Tensor::Of<float>({2, 2, 1}, {1, 3, 3, 4});
  CheckNear(LossOf(MeanSquaredError(Reduction::kNone), pairs, deep)[0], {0.5, 0});
}

TEST_CASE("Labels and outputs of other shapes are refused") {
  const LossFn loss = GENERATE(MeanSquaredError(), BinaryCrossentropy());
  CHECK(compute::testing::BuildStatus(
            {{DType::kFloat32, {4, 1}}, {DType::kFloat32, {4, 2}}},
            [&](absl::Span<const Value> in) { return std::vector<Value>{loss(in[0], in[1])}; }) ==
        absl::InvalidArgumentError("the labels have the shape [4,1], and what is compared with them [4,2]; give both "
                                   "the same, up to a last dimension of size 1"));
}

TEST_CASE("In a loop of one's own the mean over the batch of a replica is refused, as in TensorFlow") {
  struct Case {
    LossFn (*make)(Reduction reduction);
    compute::TensorType labels;
  };
  const auto [make, labels] = GENERATE(Case{MeanSquaredError, {DType::kFloat32, {4, 2}}},
                                       Case{SparseCategoricalCrossentropy, {DType::kInt32, {4}}},
                                       Case{BinaryCrossentropy, {DType::kFloat32, {4, 2}}});
  const auto status_of = [&, make = make, labels = labels](Reduction reduction) {
    return compute::testing::BuildStatus({labels, {DType::kFloat32, {4, 2}}}, [&](absl::Span<const Value> in) {
      return std::vector<Value>{make(reduction)(in[0], in[1])};
    });
  };
  CHECK(status_of(Reduction::kSumOverBatchSize).ok());
  const auto strategy = distribute::Strategy::Create({}).value();
  const distribute::UnderStrategy under(*strategy);
  CHECK(status_of(Reduction::kNone).ok());
  const absl::Status status = status_of(Reduction::kSumOverBatchSize);
  CHECK(absl::IsInvalidArgument(status));
  CHECK_THAT(std::string(status.message()),
             Catch::Matchers::StartsWith("Please use `tf.keras.losses.Reduction.SUM` or "
                                         "`tf.keras.losses.Reduction.NONE` for loss reduction"));
}

}  // namespace
}  // namespace official::keras
