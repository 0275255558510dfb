#include "utils/train/batch_memory.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "utils/compute/ops/array/array.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/optimizer/optimizer.h"
#include "utils/compute/ops/reduction/reduction.h"
#include "utils/train/largest_values.h"
#include "utils/train/line_model.h"

namespace official::train {
namespace {

using Catch::Matchers::Contains;
using compute::DType;
using compute::Value;

constexpr int64_t kFree = 200'000'000;
constexpr int64_t kFeatures = 200;
constexpr int64_t kBytesOfExample = (kFeatures + 1) * 4;

TrainingBatches Batches(int64_t batch_size, int64_t num_kept = 0) {
  return {.spec = {.features = {{"", {DType::kFloat32, {kFeatures}}}}, .labels = {{"", {DType::kFloat32, {}}}}},
          .batch_size = batch_size,
          .num_kept = num_kept};
}

// The number after `text` in a message.
int64_t NumberAfter(absl::string_view message, absl::string_view text) {
  const size_t found = message.find(text);
  REQUIRE(found != absl::string_view::npos);
  return std::atoll(std::string(message.substr(found + text.size())).c_str());
}

// The memory of a training on batches of so many examples of Batches().
TrainingMemory MemoryOf(Estimator& estimator, int64_t batch_size) {
  const auto source =
      data::Batches(data::TensorSlices({{"", compute::Tensor(DType::kFloat32, {batch_size, kFeatures})}},
                                       {{"", compute::Tensor(DType::kFloat32, {batch_size})}}),
                    {.batch_size = batch_size})
          .value();
  return estimator.MemoryOfTraining(Batches(batch_size).spec, *source->Next().value()).value();
}

TEST_CASE("A batch that does not fit is refused with the largest that does, by the plan of its program") {
  const int num_replicas = GENERATE(1, 2);
  EstimatorConfig config = Config();
  config.grad_accum_steps = GENERATE(1, 4);
  const auto estimator = MakeEstimator(config, num_replicas);
  CHECK(estimator->CheckBatchFits(Batches(8), kFree).ok());
  CHECK(estimator->CheckBatchFits(Batches(1'000'000'000), -1).ok());

  const absl::Status refused = estimator->CheckBatchFits(Batches(100'000), kFree);
  REQUIRE(absl::IsInvalidArgument(refused));
  const std::string message(refused.message());
  CHECK_THAT(message, Contains("--batch_size=100000 needs about ") && Contains(" and 200.0 MB are free; at most "));
  const int64_t largest = NumberAfter(message, "; at most --batch_size=");
  CHECK(estimator->CheckBatchFits(Batches(largest), kFree).ok());
  CHECK_FALSE(estimator->CheckBatchFits(Batches(largest + largest / 5), kFree).ok());

  const TrainingMemory memory = MemoryOf(*estimator, largest);
  CHECK(memory.host_bytes < kFree);
  CHECK(memory.host_bytes > 0.8 * kFree);
}

TEST_CASE("The optimizer's variables are counted, and each replica's sums of the micro-batches") {
  const auto memory_of = [](int num_replicas, int grad_accum_steps) {
    EstimatorConfig config = Config();
    config.grad_accum_steps = grad_accum_steps;
    Model model = Line();
    model.optimizer = [](const compute::UpdateInputs& inputs, absl::Span<const compute::VariableGradient> variables) {
      return compute::Adam(inputs, variables, {});
    };
    auto strategy = distribute::Strategy::Create({.num_replicas = num_replicas, .num_threads = 2}).value();
    return MemoryOf(*Estimator::Create(model, config, std::move(strategy)).value(), /*batch_size=*/8);
  };
  constexpr int64_t kWeights = 4 * kFeatures;
  const TrainingMemory whole = memory_of(1, 1);
  CHECK(whole.parameter_bytes == kWeights);
  CHECK(whole.other_variable_bytes == 2 * kWeights + 2 * 4 + 8);  // moments, powers of the betas, global_step
  CHECK(memory_of(2, 1).other_variable_bytes == whole.other_variable_bytes);
  constexpr int64_t kSums = kWeights + 4;  // of the gradient and the loss
  for (const int num_replicas : {1, 2}) {
    const TrainingMemory memory = memory_of(num_replicas, 2);
    CHECK(memory.other_variable_bytes == whole.other_variable_bytes + num_replicas * kSums);
    // A checkpoint is written from a copy of all but the sums.
    CHECK(memory.host_bytes == 2 * (kWeights + whole.other_variable_bytes) +
                                   num_replicas * (kSums + memory.intermediate_bytes.value()) + 4 * memory.batch_bytes);
  }
}

// Computes values, 16 for each feature, that are dead before the gradient of a variable that is larger than those of a
// small batch takes their place.
Model WithLargeVariable() {
  Model model = Line();
  model.model_fn = [](const ModelInputs& in) -> absl::StatusOr<ModelSpec> {
    const int64_t examples = in.features[0].shape().dim(0);
    const Value factors = in.graph.Constant(compute::Tensor(DType::kFloat32, {16}));
    const Value values = compute::Mul(compute::Reshape(in.features[0], {examples, kFeatures, 1}), factors);
    const Value mean = compute::Mean(values);
    const Value w = in.graph.Variable({"w", {DType::kFloat32, {250'000}}, compute::Initializer::Zeros()});
    return ModelSpec{.loss = compute::Mul(mean, compute::Mean(compute::Square(w)))};
  };
  return model;
}

TEST_CASE("A training fits where its variables, their averages and each replica's sums of them do") {
  EstimatorConfig config = Config();
  config.grad_accum_steps = 2;
  config.ema_decay = GENERATE(as<std::optional<double>>(), std::nullopt, 0.9);
  auto strategy = distribute::Strategy::Create({.num_replicas = 4, .num_threads = 4}).value();
  const auto estimator = Estimator::Create(WithLargeVariable(), config, std::move(strategy)).value();
  constexpr int64_t kBatch = 8;
  const auto needed = static_cast<double>(MemoryOf(*estimator, kBatch).host_bytes);
  const auto fits = [&](double usable) {
    return estimator->CheckBatchFits(Batches(kBatch), static_cast<int64_t>(usable / kUsableShare)).ok();
  };
  CHECK(fits(1.01 * needed));
  CHECK_FALSE(fits(0.99 * needed));
}

TEST_CASE("A value that a small batch hides behind a large variable's gradient is counted for a large one") {
  const auto estimator =
      Estimator::Create(WithLargeVariable(), Config(), distribute::Strategy::Create({.num_threads = 2}).value())
          .value();
  const absl::Status refused = estimator->CheckBatchFits(Batches(100'000), kFree);
  REQUIRE(absl::IsInvalidArgument(refused));
  const int64_t largest = NumberAfter(refused.message(), "; at most --batch_size=");
  const TrainingMemory memory = MemoryOf(*estimator, largest);
  CHECK(memory.host_bytes < kFree);
  CHECK(memory.host_bytes > 0.8 * kFree);
}

TEST_CASE("Batches that stay in memory are counted") {
  const auto estimator = MakeEstimator(Config());
  constexpr int64_t kBatch = 100;
  CHECK(estimator->CheckBatchFits(Batches(kBatch, 10), kFree).ok());
  const absl::Status refused = estimator->CheckBatchFits(Batches(kBatch, 1'000'000), kFree);
  REQUIRE(absl::IsInvalidArgument(refused));
  const std::string message(refused.message());
  CHECK_THAT(message, Contains(absl::StrCat("because --overfit_batches keeps 1000000 batches of ",
                                            1e-3 * kBatch * kBytesOfExample, " kB; at most ")));
  const int64_t most = NumberAfter(message, "; at most --overfit_batches=");
  CHECK(most * kBatch * kBytesOfExample < kFree);
  CHECK(most * kBatch * kBytesOfExample > 0.7 * kFree);
  CHECK(estimator->CheckBatchFits(Batches(kBatch, most), kFree).ok());
  CHECK_FALSE(estimator->CheckBatchFits(Batches(kBatch, most + 2), kFree).ok());
  // Where the batch itself is too large, its size is.
  CHECK_THAT(std::string(estimator->CheckBatchFits(Batches(100'000, 2), kFree).message()),
             Contains("; at most --batch_size="));
}

TEST_CASE("What takes most of the memory is named") {
  const absl::Status refused = MakeEstimator(Config(), 2)->CheckBatchFits(Batches(100'000), kFree);
  CHECK_THAT(std::string(refused.message()),
             Contains("would fit; its largest values are float32[50000,200] of Input, 40.0 MB and float32[50000"));
}

TEST_CASE("The largest values are those of the graph of the whole batch") {
  // x grows with the batch, the square of rows by 3 each, the variable not.
  const auto build = [](compute::Graph& graph, int64_t examples) {
    const compute::Value rows = graph.Input("rows", {DType::kFloat32, {3 * examples, 7}});
    compute::Square(rows);
    graph.Input("x", {DType::kUInt8, {examples, 5, 2}});
    graph.Variable({"table", {DType::kFloat32, {100, 1000}}, compute::Initializer::Zeros()});
  };
  const auto text = [&](double examples) {
    compute::Graph small, larger;
    build(small, 2);
    build(larger, 5);
    return LargestValuesText(small, larger, 2, 5, examples);
  };
  CHECK(text(10) == "; its largest values are float32[100,1000] of table, 400.0 kB and float32[30,7] of Input, 0.8 kB");
  CHECK(text(1e6) ==
        "; its largest values are float32[3000000,7] of Input, 84.0 MB and uint8[1000000,5,2] of Input, 10.0 MB");
  compute::Graph empty, of_two, of_five;
  build(of_two, 2);
  build(of_five, 5);
  CHECK(GrowthOfLargestValue(of_two, of_five) == 3 * 3 * 7 * 4);  // of the square
  CHECK(GrowthOfLargestValue(empty, of_two) == 0);
  CHECK(LargestValuesText(empty, of_two, 2, 3, 10).empty());
}

}  // namespace
}  // namespace official::train
