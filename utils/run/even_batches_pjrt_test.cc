#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "utils/compute/core/status.h"
#include "utils/compute/core/tensor.h"
#include "utils/compute/pjrt/pjrt_kind.h"
#include "utils/data/batch.h"
#include "utils/data/dataset.h"
#include "utils/distribute/strategy.h"
#include "utils/run/even_batches.h"
#include "utils/run/small_run.h"
#include "utils/train/estimator.h"
#include "utils/train/parameter_server_job.h"

namespace official::run {
namespace {

using Catch::Matchers::Contains;
using Catch::Matchers::EndsWith;
using compute::DType;
using compute::Tensor;

constexpr int kBatchSize = 4;

// Trains an epoch of so many examples on two devices of a plugin, unless CheckEvenBatches refuses it.
absl::Status TrainEpoch(int64_t num_examples, bool sync_batch_norm, int grad_accum_steps) {
  Config config = SmallRun(kBatchSize);
  config.performance.distribution_strategy = "tpu";
  config.train.grad_accum_steps = grad_accum_steps;
  train::Model model = train::LinearModel();
  model.synchronizes = sync_batch_norm;
  ASSIGN_OR_RETURN(auto strategy, distribute::Strategy::Create(
                                      {.device_kind = compute::kPjrtKind, .num_replicas = 2, .num_threads = 1}));
  ASSIGN_OR_RETURN(
      const auto estimator,
      train::Estimator::Create(std::move(model), train::EstimatorConfig{config.train}, std::move(strategy)));
  Input input;
  input.num_train_examples = num_examples;
  RETURN_IF_ERROR(CheckEvenBatches(config, input, /*schedule=*/{}, *estimator));
  const auto batches = [=](data::Position start) {
    const Tensor x(DType::kFloat32, {num_examples, 3}), y(DType::kFloat32, {num_examples});
    std::fill_n(x.data<float>(), x.num_elements(), 1.0f);
    std::fill_n(y.data<float>(), y.num_elements(), 1.0f);
    return data::Batches(data::TensorSlices({{"", x}}, {{"", y}}), {.batch_size = kBatchSize, .start = start});
  };
  return estimator->Train(batches, std::nullopt, {});
}

TEST_CASE("What the refusal of micro-batches that cannot be divided names works") {
  // The last batch has 2 or 3 examples.
  const auto [num_examples, alternative] =
      GENERATE(table<int64_t, std::string>({{6, ", or train without gradient accumulation"}, {7, ""}}));
  const absl::Status refused = TrainEpoch(num_examples, /*sync_batch_norm=*/true, /*grad_accum_steps=*/2);
  CHECK(absl::IsInvalidArgument(refused));
  CHECK_THAT(std::string(refused.message()),
             Contains("multiples of 4") && EndsWith("; leave out --sync_batch_norm" + alternative));
  CHECK(TrainEpoch(num_examples, /*sync_batch_norm=*/false, /*grad_accum_steps=*/2) == absl::OkStatus());
  const absl::Status without = TrainEpoch(num_examples, /*sync_batch_norm=*/true, /*grad_accum_steps=*/1);
  CHECK(without.ok() == !alternative.empty());
}

}  // namespace
}  // namespace official::run
