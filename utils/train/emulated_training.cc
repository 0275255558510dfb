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
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/compute/core/tensor.h"
#include "utils/compute/cuda_emulation/grid.h"
#include "utils/distribute/memory_exchange.h"
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

std::string NewDirectory(const Model& model) {
  static int counter = 0;
  const char* const root = std::getenv("TEST_TMPDIR");
  return absl::StrCat(root ? root : "/tmp", "/", model.name, "-", getpid(), "-", ++counter);
}

// Trains on the devices of one process. Appends the loss of each step to `losses`.
absl::Status Train(const distribute::StrategyOptions& options, const std::string& model_dir, const Model& model,
                   const InputFn& input, compute::DType dtype, std::vector<double>& losses) {
  EstimatorConfig config;
  config.model_dir = model_dir;
  config.dtype = dtype;
  if (dtype == compute::DType::kFloat16) config.loss_scale.value = 128;
  config.winograd = false;  // what is computed does not depend on times
  ASSIGN_OR_RETURN(auto strategy, distribute::Strategy::Create(options));
  ASSIGN_OR_RETURN(const auto estimator, Estimator::Create(model, std::move(config), std::move(strategy)));
  std::vector<std::unique_ptr<logs::Hook>> hooks;
  hooks.push_back(std::make_unique<logs::LossRecorder<double>>(losses));
  return estimator->Train(input, kSteps, hooks);
}

Training Trained(const absl::Status& status, std::vector<double> losses, const std::string& model_dir) {
  INFO(status);
  REQUIRE(status.ok());
  REQUIRE(losses.size() == kSteps);
  const std::string checkpoint = absl::StrCat(model_dir, "/model.ckpt-");
  return {.losses = std::move(losses),
          .first = BundleReader::Open(absl::StrCat(checkpoint, 0)).value(),
          .last = BundleReader::Open(absl::StrCat(checkpoint, kSteps)).value()};
}

Training TrainOn(const std::string& device_kind, int num_replicas, const Model& model, const InputFn& input,
                 compute::DType dtype) {
  const std::string model_dir = NewDirectory(model);
  std::vector<double> losses;
  const absl::Status status = Train({.device_kind = device_kind, .num_replicas = num_replicas, .num_threads = 1},
                                    model_dir, model, input, dtype, losses);
  return Trained(status, std::move(losses), model_dir);
}

// Trains on a GPU of each of so many workers, which are threads here.
Training TrainOnWorkers(int num_workers, const Model& model, const InputFn& input, compute::DType dtype) {
  const std::string model_dir = NewDirectory(model);
  const auto exchanges = distribute::MakeMemoryExchanges(num_workers);
  std::vector<std::vector<double>> losses(num_workers);
  std::vector<absl::Status> statuses(num_workers);
  std::vector<std::thread> threads;
  for (int w = 0; w < num_workers; ++w) {
    threads.emplace_back([&, w] {
      distribute::StrategyOptions options = {
          .device_kind = compute::kCudaKind, .num_replicas = num_workers, .device_indices = {w}, .num_threads = 1};
      options.workers = distribute::Workers{.exchange = exchanges[w].get(), .replicas = {}};
      for (int r = 0; r < num_workers; ++r) options.workers->replicas.push_back({r, r + 1});
      statuses[w] = Train(options, w == 0 ? model_dir : "/dev/null/none", model, input, dtype, losses[w]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int w = 1; w < num_workers; ++w) {
    INFO(statuses[w]);
    REQUIRE(statuses[w].ok());
  }
  return Trained(statuses[0], std::move(losses[0]), model_dir);
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
    RequireSameBits(gpu, TrainOnWorkers(num_replicas, model, input, dtype));
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
