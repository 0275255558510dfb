#include "utils/train/emulated_training.h"

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "utils/compute/cuda_emulation/grid.h"
#include "utils/distribute/memory_exchange.h"
#include "utils/distribute/strategy.h"

namespace official::train {
namespace {

constexpr int kSteps = 5;

// Trains on a GPU of each of so many workers, which are threads here.
RecordedTraining TrainOnWorkers(int num_workers, const Model& model, const InputFn& input, compute::DType dtype) {
  const std::string model_dir = NewModelDir(model);
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
      statuses[w] =
          Train(options, w == 0 ? model_dir : "/dev/null/none", model, input, TestConfig(dtype), kSteps, losses[w]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int w = 1; w < num_workers; ++w) {
    INFO(statuses[w]);
    REQUIRE(statuses[w].ok());
  }
  return Recorded(statuses[0], std::move(losses[0]), model_dir);
}

void RequireSameTraining(const RecordedTraining& a, const RecordedTraining& b) {
  REQUIRE(a.losses == b.losses);
  RequireSameBits(*a.last, *b.last);
}

}  // namespace

TrainingDifference TrainOnEmulatedGpu(const Model& model, const InputFn& input, compute::DType dtype,
                                      int num_replicas) {
  const RecordedTraining cpu = TrainOn("cpu", num_replicas, model, input, TestConfig(dtype), kSteps);
  const int64_t threads_before = compute::cuda_emulation::NumThreadsRun();
  const RecordedTraining gpu = TrainOn("cuda", num_replicas, model, input, TestConfig(dtype), kSteps);
  REQUIRE(compute::cuda_emulation::NumThreadsRun() > threads_before);
  if (num_replicas > 1) {
    const compute::cuda_emulation::Schedule schedule = compute::cuda_emulation::CurrentSchedule();
    compute::cuda_emulation::SetSchedule(schedule == compute::cuda_emulation::Schedule::kDescending
                                             ? compute::cuda_emulation::Schedule::kAscending
                                             : compute::cuda_emulation::Schedule::kDescending);
    RequireSameTraining(gpu, TrainOn("cuda", num_replicas, model, input, TestConfig(dtype), kSteps));
    compute::cuda_emulation::SetSchedule(schedule);
    RequireSameTraining(gpu, TrainOnWorkers(num_replicas, model, input, dtype));
  }
  return DifferenceOf(cpu, gpu);
}

}  // namespace official::train
