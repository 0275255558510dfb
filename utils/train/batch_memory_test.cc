#include "utils/train/batch_memory.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/train/largest_values.h"
#include "utils/train/line_model.h"

namespace official::train {
namespace {

using Catch::Matchers::Contains;
using compute::DType;

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

  const auto batch = data::Batches(data::TensorSlices({{"", compute::Tensor(DType::kFloat32, {largest, kFeatures})}},
                                                      {{"", compute::Tensor(DType::kFloat32, {largest})}}),
                                   {.batch_size = largest})
                         .value()
                         ->Next()
                         .value();
  const MemoryPlan plan = estimator->PlanMemory(Batches(largest).spec, *batch).value();
  CHECK(plan.host_bytes < kFree);
  CHECK(plan.host_bytes > 0.8 * kFree);
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
