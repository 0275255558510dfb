#include "utils/train/training_difference.h"

#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/compute/core/tensor.h"
#include "utils/logs/loss_recorder.h"

namespace official::train {
namespace {

using compute::Tensor;

double Norm(const Tensor& a) {
  double sum = 0;
  for (int64_t i = 0; i < a.num_elements(); ++i) sum += double{a.data<float>()[i]} * double{a.data<float>()[i]};
  return std::sqrt(sum);
}

double NormOfDifference(const Tensor& a, const Tensor& b) {
  double sum = 0;
  for (int64_t i = 0; i < a.num_elements(); ++i) {
    const double difference = double{a.data<float>()[i]} - double{b.data<float>()[i]};
    sum += difference * difference;
  }
  return std::sqrt(sum);
}

}  // namespace

EstimatorConfig TestConfig(compute::DType dtype) {
  EstimatorConfig config;
  config.dtype = dtype;
  if (dtype == compute::DType::kFloat16) config.loss_scale.value = 128;
  config.winograd = false;
  return config;
}

std::string NewModelDir(const Model& model) {
  static int counter = 0;
  const char* const root = std::getenv("TEST_TMPDIR");
  return absl::StrCat(root ? root : "/tmp", "/", model.name, "-", getpid(), "-", ++counter);
}

absl::Status Train(const distribute::StrategyOptions& options, const std::string& model_dir, const Model& model,
                   const InputFn& input, EstimatorConfig config, int num_steps, std::vector<double>& losses) {
  config.model_dir = model_dir;
  ASSIGN_OR_RETURN(auto strategy, distribute::Strategy::Create(options));
  ASSIGN_OR_RETURN(const auto estimator, Estimator::Create(model, std::move(config), std::move(strategy)));
  std::vector<std::unique_ptr<logs::Hook>> hooks;
  hooks.push_back(std::make_unique<logs::LossRecorder<double>>(losses));
  return estimator->Train(input, num_steps, hooks);
}

RecordedTraining Recorded(const absl::Status& status, std::vector<double> losses, const std::string& model_dir) {
  INFO(status);
  REQUIRE(status.ok());
  const std::string checkpoint = absl::StrCat(model_dir, "/model.ckpt-");
  const size_t num_steps = losses.size();
  return {.model_dir = model_dir,
          .losses = std::move(losses),
          .first = BundleReader::Open(absl::StrCat(checkpoint, 0)).value(),
          .last = BundleReader::Open(absl::StrCat(checkpoint, num_steps)).value()};
}

RecordedTraining TrainOn(const std::string& device_kind, int num_replicas, const Model& model, const InputFn& input,
                         const EstimatorConfig& config, int num_steps) {
  const std::string model_dir = NewModelDir(model);
  std::vector<double> losses;
  const absl::Status status = Train({.device_kind = device_kind, .num_replicas = num_replicas, .num_threads = 1},
                                    model_dir, model, input, config, num_steps, losses);
  return Recorded(status, std::move(losses), model_dir);
}

void RequireSameBits(const BundleReader& a, const BundleReader& b) {
  for (const StoredTensor& tensor : a.ListTensors()) {
    if (!tensor.dtype) continue;  // what a run says about itself
    const Tensor x = a.Read(tensor.name).value(), y = b.Read(tensor.name).value();
    CAPTURE(tensor.name);
    REQUIRE(x.type() == y.type());
    REQUIRE(std::memcmp(x.raw_data(), y.raw_data(), x.num_bytes()) == 0);
  }
}

TrainingDifference DifferenceOf(const RecordedTraining& cpu, const RecordedTraining& other) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  REQUIRE(other.losses.size() == cpu.losses.size());
  RequireSameBits(*cpu.first, *other.first);
  const auto num_steps = static_cast<double>(cpu.losses.size());
  TrainingDifference largest;
  for (size_t step = 0; step < cpu.losses.size(); ++step) {
    const double difference = std::abs(other.losses[step] - cpu.losses[step]) / std::abs(cpu.losses[step]);
    largest.loss = std::max(largest.loss, std::isfinite(difference) ? difference : kInfinity);
  }
  const std::vector<StoredTensor> tensors = cpu.last->ListTensors();
  REQUIRE(other.last->ListTensors().size() == tensors.size());
  for (const StoredTensor& tensor : tensors) {
    if (!tensor.dtype) continue;  // what a run says about itself
    const Tensor want = cpu.last->Read(tensor.name).value(), got = other.last->Read(tensor.name).value();
    CAPTURE(tensor.name);
    REQUIRE(got.type() == want.type());
    double difference = 0, of_norm = 0;
    if (tensor.dtype == compute::DType::kFloat32) {
      // Each update rounds what it writes, to the nearest float.
      const double rounding = num_steps * std::numeric_limits<float>::epsilon() / 2 * Norm(want);
      const double distance = NormOfDifference(got, want), excess = distance - rounding;
      if (distance != 0) of_norm = distance / Norm(want);
      if (!(excess <= 0)) difference = excess / NormOfDifference(want, cpu.first->Read(tensor.name).value());
    } else if (std::memcmp(got.raw_data(), want.raw_data(), want.num_bytes()) != 0) {
      difference = of_norm = kInfinity;
    }
    if (std::isnan(difference)) difference = kInfinity;
    if (std::isnan(of_norm)) of_norm = kInfinity;
    if (difference > largest.tensors) largest.tensors = difference, largest.worst_tensor = tensor.name;
    if (of_norm > largest.of_norm) largest.of_norm = of_norm, largest.worst_of_norm = tensor.name;
  }
  return largest;
}

}  // namespace official::train
