// Runs with central_storage on several GPUs, which are emulated here.

#include <catch2/catch.hpp>
#include <csignal>
#include <functional>
#include <memory>
#include <new>
#include <sstream>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "utils/compute/cuda_emulation/grid.h"
#include "utils/logs/hook.h"
#include "utils/misc/gpu_count.h"
#include "utils/run/examples_of_epoch.h"
#include "utils/run/session.h"
#include "utils/run/small_run.h"
#include "utils/run/strategy.h"
#include "utils/train/parameter_server_job.h"

namespace official::misc {

// Instead of that of gpu_count.cc, which asks the driver.
VisibleGpus CountVisibleGpus() { return {.count = 2, .why_none = "", .model = "emulated"}; }

}  // namespace official::misc

namespace official::run {
namespace {

Config OnGpus(const std::string& strategy) {
  Config config = SmallRun(train::kBatch);
  config.base.num_gpus = 2;
  config.performance.distribution_strategy = strategy;
  return config;
}

// Asks the run to stop after a step.
class StopHook : public logs::Hook {
 public:
  explicit StopHook(int64_t step) : step_(step) {}
  absl::Status AfterStep(const logs::StepInfo& info) override {
    if (info.global_step == step_) std::raise(SIGTERM);
    return absl::OkStatus();
  }

 private:
  const int64_t step_;
};

absl::Status Train(const Config& config, const train::Model& model, std::unique_ptr<logs::Hook> hook = nullptr) {
  std::ostringstream results;
  auto session = Session::Open(config, results);
  if (!session.ok()) return session.status();
  if (hook) (*session)->AddHook(std::move(hook));
  const auto estimator = (*session)->Begin(model, ExamplesOfEpoch(), {.name = "linear", .tensors_to_log = {}});
  if (!estimator.ok()) return estimator.status();
  CHECK((*estimator)->strategy().name() == config.performance.distribution_strategy);
  return (*session)->TrainAndEvaluate("accuracy");
}

TEST_CASE("The variables of several GPUs are in the memory of the host, and the numbers those of replicas") {
  const Config mirrored = OnGpus("mirrored"), central = OnGpus("central_storage");
  REQUIRE(Train(mirrored, train::LinearModel()) == absl::OkStatus());
  const int64_t threads_before = compute::cuda_emulation::NumThreadsRun();
  REQUIRE(Train(central, train::LinearModel()) == absl::OkStatus());
  CHECK(compute::cuda_emulation::NumThreadsRun() > threads_before);
  CHECK(Checkpoint(central)->Read(train::kGlobalStep).value().scalar<int64_t>() == train::kExamples / train::kBatch);
  CheckSameBits(mirrored, central);
}

TEST_CASE("Central storage on GPUs goes on where a signal has stopped it, with the same bits") {
  const train::Model model = train::EmbeddingModel(train::Optimizer(2));
  const Config whole = OnGpus("central_storage"), stopped = OnGpus("central_storage");
  REQUIRE(Train(whole, model) == absl::OkStatus());
  REQUIRE(absl::IsCancelled(Train(stopped, model, std::make_unique<StopHook>(3))));
  REQUIRE(Checkpoint(stopped)->Read(train::kGlobalStep).value().scalar<int64_t>() == 3);
  REQUIRE(Train(stopped, model) == absl::OkStatus());
  CheckSameBits(whole, stopped);
}

TEST_CASE("Central storage on GPUs evaluates between rounds and alone, and has nothing to do at the end") {
  Config mirrored = OnGpus("mirrored"), central = OnGpus("central_storage");
  for (Config* config : {&mirrored, &central}) {
    config->base.train_epochs = 3;
    config->train.grad_accum_steps = 2;
    REQUIRE(Train(*config, train::LinearModel()) == absl::OkStatus());
  }
  CHECK(Checkpoint(central)->Read(train::kGlobalStep).value().scalar<int64_t>() == 18);
  CheckSameBits(mirrored, central);
  CHECK(Train(central, train::LinearModel()) == absl::OkStatus());
  central.base.eval_only = true;
  CHECK(Train(central, train::LinearModel()) == absl::OkStatus());
}

// A model that calls `fail` where the server builds it.
train::Model FailingOnTheServer(const std::function<absl::Status()>& fail) {
  train::Model model = train::LinearModel();
  model.model_fn = [=, build = model.model_fn, worker = std::this_thread::get_id()](
                       const train::ModelInputs& in) -> absl::StatusOr<train::ModelSpec> {
    if (std::this_thread::get_id() != worker) {
      const absl::Status status = fail();
      if (!status.ok()) return status;
    }
    return build(in);
  };
  return model;
}

TEST_CASE("An error of the server that is in the process is that of the run") {
  const auto full = [] { return absl::ResourceExhaustedError("no room for the variables"); };
  CHECK(Train(OnGpus("central_storage"), FailingOnTheServer(full)) == full());
  const auto no_memory = []() -> absl::Status { throw std::bad_alloc(); };
  CHECK(Train(OnGpus("central_storage"), FailingOnTheServer(no_memory)) ==
        absl::InternalError("out of memory for the variables on the host"));
}

TEST_CASE("Flags that servers do not have are refused, and so are loops of one's own") {
  Config config = OnGpus("central_storage");
  CHECK(ConnectedStrategy::Create(config).status() ==
        absl::InvalidArgumentError("--distribution_strategy=central_storage: in a training loop of one's own it is for "
                                   "CPU devices or one GPU, and this run has 2 GPUs; use "
                                   "--distribution_strategy=mirrored, which computes the same"));
  config.train.dtype = compute::DType::kBFloat16;
  CHECK(DevicesFor(config).status() ==
        absl::InvalidArgumentError("--distribution_strategy=central_storage updates the variables of 2 GPUs in the "
                                   "memory of the host, and --dtype=bf16 is not for that; use --dtype=fp32, or "
                                   "--distribution_strategy=mirrored"));
}

}  // namespace
}  // namespace official::run
