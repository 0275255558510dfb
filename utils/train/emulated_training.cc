#include "utils/train/emulated_training.h"

#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/tensor.h"
#include "utils/compute/cuda_emulation/grid.h"
#include "utils/distribute/strategy.h"
#include "utils/logs/loss_recorder.h"
#include "utils/train/checkpoint/bundle.h"

namespace official::train {
namespace {

using compute::Tensor;

constexpr int kSteps = 5;

struct Training {
  std::vector<double> losses;
  std::unique_ptr<BundleReader> first, last;  // checkpoints
};

Training TrainOn(const std::string& device_kind, int num_replicas, const Model& model, const InputFn& input,
                 compute::DType dtype) {
  static int counter = 0;
  const char* const root = std::getenv("TEST_TMPDIR");
  EstimatorConfig config;
  config.model_dir = absl::StrCat(root ? root : "/tmp", "/", model.name, "-", getpid(), "-", ++counter);
  config.dtype = dtype;
  if (dtype == compute::DType::kFloat16) config.loss_scale.value = 128;
  config.winograd = false;  // what is computed does not depend on times
  const std::string checkpoint = absl::StrCat(config.model_dir, "/model.ckpt-");
  auto strategy =
      distribute::Strategy::Create({.device_kind = device_kind, .num_replicas = num_replicas, .num_threads = 1})
          .value();
  const auto estimator = Estimator::Create(model, std::move(config), std::move(strategy)).value();
  Training training;
  std::vector<std::unique_ptr<logs::Hook>> hooks;
  hooks.push_back(std::make_unique<logs::LossRecorder<double>>(training.losses));
  const absl::Status status = estimator->Train(input, kSteps, hooks);
  INFO(device_kind << ": " << status);
  REQUIRE(status.ok());
  REQUIRE(training.losses.size() == kSteps);
  training.first = BundleReader::Open(absl::StrCat(checkpoint, 0)).value();
  training.last = BundleReader::Open(absl::StrCat(checkpoint, kSteps)).value();
  return training;
}

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

void RequireSameBits(const Training& a, const Training& b) {
  REQUIRE(a.losses == b.losses);
  for (const BundleTensor& tensor : a.last->ListTensors()) {
    if (!tensor.dtype) continue;  // what a run says about itself
    const Tensor x = a.last->Read(tensor.name).value(), y = b.last->Read(tensor.name).value();
    CAPTURE(tensor.name);
    REQUIRE(x.type() == y.type());
    REQUIRE(std::memcmp(x.raw_data(), y.raw_data(), x.num_bytes()) == 0);
  }
}

}  // namespace

TrainingDifference TrainOnEmulatedGpu(const Model& model, const InputFn& input, compute::DType dtype,
                                      int num_replicas) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const Training cpu = TrainOn("cpu", num_replicas, model, input, dtype);
  const int64_t threads_before = compute::cuda_emulation::NumThreadsRun();
  const Training gpu = TrainOn("cuda", num_replicas, model, input, dtype);
  REQUIRE(compute::cuda_emulation::NumThreadsRun() > threads_before);
  if (num_replicas > 1) {
    const compute::cuda_emulation::Schedule schedule = compute::cuda_emulation::CurrentSchedule();
    compute::cuda_emulation::SetSchedule(schedule == compute::cuda_emulation::Schedule::kDescending
                                             ? compute::cuda_emulation::Schedule::kAscending
                                             : compute::cuda_emulation::Schedule::kDescending);
    RequireSameBits(gpu, TrainOn("cuda", num_replicas, model, input, dtype));
    compute::cuda_emulation::SetSchedule(schedule);
  }
  TrainingDifference largest;
  for (int step = 0; step < kSteps; ++step) {
    const double difference = std::abs(gpu.losses[step] - cpu.losses[step]) / std::abs(cpu.losses[step]);
    largest.loss = std::max(largest.loss, std::isfinite(difference) ? difference : kInfinity);
  }
  const std::vector<BundleTensor> tensors = cpu.last->ListTensors();
  REQUIRE(gpu.last->ListTensors().size() == tensors.size());
  for (const BundleTensor& tensor : tensors) {
    if (!tensor.dtype) continue;  // what a run says about itself
    const Tensor want = cpu.last->Read(tensor.name).value(), got = gpu.last->Read(tensor.name).value();
    CAPTURE(tensor.name);
    REQUIRE(got.type() == want.type());
    double difference = 0;
    if (tensor.dtype == compute::DType::kFloat32) {
      // Each update rounds what it writes, to the nearest float.
      const double rounding = kSteps * std::numeric_limits<float>::epsilon() / 2 * Norm(want);
      const double excess = NormOfDifference(got, want) - rounding;
      if (!(excess <= 0)) difference = excess / NormOfDifference(want, cpu.first->Read(tensor.name).value());
    } else if (std::memcmp(got.raw_data(), want.raw_data(), want.num_bytes()) != 0) {
      difference = kInfinity;
    }
    if (std::isnan(difference)) difference = kInfinity;
    if (difference > largest.tensors) largest.tensors = difference, largest.worst_tensor = tensor.name;
  }
  return largest;
}

}  // namespace official::train
