#include "utils/train/pjrt_training.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <iostream>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "utils/compute/core/tensor.h"
#include "utils/compute/pjrt/pjrt_kind.h"
#include "utils/data/batch.h"
#include "utils/distribute/strategy.h"

namespace official::train {
namespace {

using compute::Tensor;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double Difference(double got, double want) {
  const double difference = std::abs(got - want) / std::max(1.0, std::abs(want));
  return std::isfinite(difference) ? difference : kInfinity;
}

double Difference(const Tensor& got, const Tensor& want) {
  REQUIRE(got.type() == want.type());
  if (want.dtype() != compute::DType::kFloat32) {
    return std::memcmp(got.raw_data(), want.raw_data(), want.num_bytes()) == 0 ? 0 : kInfinity;
  }
  double largest = 0;
  for (int64_t i = 0; i < want.num_elements(); ++i) {
    largest = std::max(largest, Difference(got.data<float>()[i], want.data<float>()[i]));
  }
  return largest;
}

}  // namespace

CpuAndPjrt::CpuAndPjrt(Model model, ExamplesFn make_examples, int64_t batch_size, EstimatorConfig config,
                       int num_replicas)
    : model_(std::move(model)),
      make_examples_(std::move(make_examples)),
      batch_size_(batch_size),
      config_(std::move(config)),
      num_replicas_(num_replicas) {}

TrainingDifference CpuAndPjrt::TrainOnBoth(int seed) {
  examples_ = make_examples_(seed);
  const InputFn input = [&](data::Position start) {
    return data::Batches(examples_, {.batch_size = batch_size_, .start = start});
  };
  const int64_t num_steps = examples_->num_examples() / batch_size_;
  const auto train_on = [&](const char* device_kind) {
    return TrainOn(device_kind, num_replicas_, model_, input, config_, static_cast<int>(num_steps));
  };
  cpu_ = train_on("cpu");
  // Steps that a dynamic loss scale skips are none.
  REQUIRE(static_cast<int64_t>(cpu_.losses.size()) > (config_.loss_scale.dynamic ? num_steps / 2 : num_steps - 1));
  pjrt_ = train_on(compute::kPjrtKind);
  const TrainingDifference difference = DifferenceOf(cpu_, pjrt_);
  std::cout << model_.name << ", " << cpu_.losses.size() << " steps, " << num_replicas_
            << " replicas: the losses differ by " << difference.loss << ", what changed of " << difference.worst_tensor
            << " by " << difference.tensors << ", " << difference.worst_of_norm << " by " << difference.of_norm
            << " of its norm\n";
  return difference;
}

void CpuAndPjrt::Train(const Limits& most, Flips flips) {
  TrainingDifference difference = TrainOnBoth(/*seed=*/4);
  const bool differs = difference.tensors > most.tensors || difference.of_norm > most.of_norm;
  if (flips == Flips::kMayHappen && std::isfinite(difference.tensors) && differs) {
    CHECK(difference.loss <= most.loss);
    difference = TrainOnBoth(/*seed=*/5);
  }
  CAPTURE(difference.worst_tensor, difference.worst_of_norm);
  CHECK(difference.loss <= most.loss);
  CHECK(difference.tensors <= most.tensors);
  CHECK(difference.of_norm <= most.of_norm);
}

std::unique_ptr<Estimator> CpuAndPjrt::Open(const RecordedTraining& trained, const char* device_kind) const {
  EstimatorConfig config = config_;
  config.model_dir = trained.model_dir;
  config.trains = false;
  auto strategy = distribute::Strategy::Create({.device_kind = device_kind, .num_replicas = 1, .num_threads = 1});
  return Estimator::Create(model_, std::move(config), std::move(strategy).value()).value();
}

double CpuAndPjrt::EvaluationDifference(const RecordedTraining& trained, const data::DatasetPtr& examples) const {
  const auto evaluate = [&](const char* device_kind) {
    const auto input = [&](data::Position start) {
      return data::Batches(examples, {.batch_size = batch_size_, .start = start});
    };
    return Open(trained, device_kind)->Evaluate(input, std::nullopt).value();
  };
  const EvalResults want = evaluate("cpu"), got = evaluate(compute::kPjrtKind);
  REQUIRE(want.size() > 1);
  REQUIRE(got.size() == want.size());
  double largest = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    REQUIRE(got[i].first == want[i].first);
    largest = std::max(largest, Difference(got[i].second, want[i].second));
  }
  return largest;
}

double CpuAndPjrt::EvaluationDifference(const data::DatasetPtr& examples) const {
  return std::max(EvaluationDifference(cpu_, examples), EvaluationDifference(pjrt_, examples));
}

double CpuAndPjrt::PredictionDifference(const data::DatasetPtr& examples) const {
  const auto predict = [&](const char* device_kind) {
    const data::BatchSourcePtr source = data::Batches(examples, {.batch_size = batch_size_}).value();
    const std::optional<data::Batch> batch = source->Next().value();
    return Open(cpu_, device_kind)->Predict(source->spec(), batch->features).value();
  };
  const auto want = predict("cpu"), got = predict(compute::kPjrtKind);
  REQUIRE(!want.empty());
  REQUIRE(got.size() == want.size());
  double largest = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    REQUIRE(got[i].first == want[i].first);
    largest = std::max(largest, Difference(got[i].second, want[i].second));
  }
  return largest;
}

}  // namespace official::train
