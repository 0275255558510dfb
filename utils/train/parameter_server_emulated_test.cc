// Workers of jobs with parameter servers that compute on GPUs, which are emulated here: what they bring to the servers
// and back are copies.

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>

#include "utils/compute/cuda_emulation/grid.h"
#include "utils/train/parameter_server_job.h"

namespace official::train {
namespace {

constexpr int64_t kSteps = 5;

// Trains on GPUs with servers and requires that kernels of the emulated GPUs have run.
void TrainOnGpus(const Model& model, const EstimatorConfig& config, Tasks tasks) {
  tasks.device_kind = "cuda";
  const int64_t threads_before = compute::cuda_emulation::NumThreadsRun();
  const Ends ends = TrainWithServers(model, config, tasks, kSteps);
  INFO(ends.status());
  REQUIRE(ends.status().ok());
  REQUIRE(compute::cuda_emulation::NumThreadsRun() > threads_before);
}

void CheckClose(const EstimatorConfig& a, const EstimatorConfig& b) {
  const std::map<std::string, std::string> ours = Variables(a.model_dir, kSteps),
                                           theirs = Variables(b.model_dir, kSteps);
  REQUIRE(ours.size() == theirs.size());
  for (const auto& [name, bytes] : ours) {
    CAPTURE(name);
    const std::string& other = theirs.at(name);
    REQUIRE(bytes.size() == other.size());
    if (name == kGlobalStep) {
      CHECK(bytes == other);
      continue;
    }
    for (size_t i = 0; i < bytes.size(); i += sizeof(float)) {
      float x, y;
      std::memcpy(&x, &bytes[i], sizeof x);
      std::memcpy(&y, &other[i], sizeof y);
      CHECK(std::abs(x - y) <= 1e-6f * std::max(1.0f, std::abs(y)));
    }
  }
}

TEST_CASE("One worker on GPUs and its servers end with the bits of one device where sums are exact") {
  const int num_servers = GENERATE(1, 2), num_replicas = GENERATE(1, 2);
  CAPTURE(num_servers, num_replicas);
  const EstimatorConfig alone = NewConfig(), with_servers = NewConfig();
  REQUIRE(TrainAlone(LinearModel(), alone, kSteps).ok());
  TrainOnGpus(LinearModel(), with_servers, {1, num_servers, num_replicas});
  CHECK((Variables(with_servers.model_dir, kSteps) == Variables(alone.model_dir, kSteps)));
}

TEST_CASE("A worker on GPUs trains shards of variables, slots and moving averages as one on CPU devices does") {
  const int kind = GENERATE(1, 2), num_replicas = GENERATE(1, 2);
  CAPTURE(kind, num_replicas);
  const Model model = RegressionModel(Optimizer(kind));
  EstimatorConfig on_cpu = NewConfig(/*micro_batches=*/2), on_gpu = NewConfig(/*micro_batches=*/2);
  on_cpu.servers.partitioner =
      on_gpu.servers.partitioner = [](const compute::TensorType& type) { return type.shape.dim(0) > 1 ? 2 : 1; };
  REQUIRE(TrainWithServers(model, on_cpu, {1, 2, num_replicas}, kSteps).status() == absl::OkStatus());
  TrainOnGpus(model, on_gpu, {1, 2, num_replicas});
  CheckClose(on_gpu, on_cpu);
}

TEST_CASE("A worker on GPUs reads and sends rows of tables as one on CPU devices does") {
  const int num_replicas = GENERATE(1, 2);
  const bool whole = GENERATE(false, true);
  CAPTURE(num_replicas, whole);
  const Model model = EmbeddingModel(Optimizer(2), whole);
  const EstimatorConfig on_cpu = NewConfig(), on_gpu = NewConfig();
  REQUIRE(TrainWithServers(model, on_cpu, {1, 2, num_replicas}, kSteps).status() == absl::OkStatus());
  TrainOnGpus(model, on_gpu, {1, 2, num_replicas});
  CheckClose(on_gpu, on_cpu);
}

}  // namespace
}  // namespace official::train
