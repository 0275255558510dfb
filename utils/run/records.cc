#include "utils/run/records.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/compute/cpu/onednn.h"
#include "utils/compute/pjrt/pjrt_kind.h"
#include "utils/logs/hooks_helper.h"
#include "utils/logs/log.h"
#include "utils/logs/profile_hook.h"
#include "utils/run/run_record.h"
#include "utils/train/train_hooks.h"

namespace official::run {
namespace {

// What our own kernels are made of: "own, AVX-512". Those of AMX's tiles say so themselves.
std::string OwnKernels(const std::string& device_kind, compute::DType dtype) {
  using compute::Isa;
  if (device_kind == compute::kPjrtKind) return "the plugin's compiler";
  if (device_kind != "cpu") return "own, CUDA";
  const bool pairs = dtype == compute::DType::kBFloat16 && compute::CpuIsa() == Isa::kAvx512Bf16;
  return absl::StrCat("own, ", compute::IsaName(pairs ? Isa::kAvx512Bf16 : std::min(compute::CpuIsa(), Isa::kAvx512)));
}

}  // namespace

absl::Status Records::Open(const Config& config, const Input& input, uint64_t seed, bool resumes) {
  const flags::BaseConfig& base = config.base;
  ASSIGN_OR_RETURN(logger_,
                   logs::CreateBenchmarkLogger(config.benchmark.benchmark_logger_type.value_or("BenchmarkFileLogger"),
                                               config.benchmark.benchmark_log_dir.value_or(config.train.model_dir)));
  for (const auto& hook : hooks_) {
    RETURN_IF_ERROR(hook->BeginRun({.resumed = resumes,
                                    .seed = seed,
                                    .batch_size = base.batch_size,
                                    .grad_accum_steps = config.train.grad_accum_steps,
                                    .num_train_examples = input.num_train_examples}));
  }
  return absl::OkStatus();
}

absl::Status Records::Begin(const Config& config, const SessionOptions& options, const Input& input,
                            const Devices& devices, const train::Schedule& schedule, const train::EpochSize& epoch,
                            const train::RunState& state) {
  const flags::BaseConfig& base = config.base;
  RETURN_IF_ERROR(logger_->LogRunInfo(RunRecord(config, options, input.dataset, devices.replica_batch)));
  ASSIGN_OR_RETURN(std::vector<std::unique_ptr<logs::Hook>> named,
                   logs::GetTrainHooks(base.hooks, {.model_dir = config.train.model_dir,
                                                    .batch_size = base.batch_size,
                                                    .logger = logger_.get(),
                                                    .tensors_to_log = options.tensors_to_log}));
  for (std::unique_ptr<logs::Hook>& hook : named) hooks_.push_back(std::move(hook));
  auto progress = std::make_unique<logs::Progress>(
      logs::ProgressOptions{.format = logs::CurrentLogFormat(),
                            .total_steps = train::TotalSteps(schedule, state, epoch),
                            .total_epochs = schedule.steps ? 0 : base.train_epochs,
                            .log_every_n_steps = config.train.log_every_n_steps,
                            .tensors = logs::TensorsInLog(base.hooks, options.tensors_to_log)});
  progress_ = progress.get();
  hooks_.push_back(std::move(progress));
  hooks_.push_back(train::MakeLossMetricHook(logger_.get(), config.train.log_every_n_steps));
  hooks_.push_back(train::MakeFirstStepHook());
  if (config.performance.describe_plan) {
    hooks_.push_back(train::MakePlanHook(OwnKernels(devices.kind, config.train.dtype)));
  }
  if (config.performance.profile) {
    ASSIGN_OR_RETURN(const flags::StepRange steps, flags::ParseProfile(*config.performance.profile));
    hooks_.push_back(logs::MakeProfileHook({.first_step = steps.first,
                                            .last_step = steps.last,
                                            .model_dir = config.train.model_dir,
                                            .own_kernels = OwnKernels(devices.kind, config.train.dtype)}));
  }
  return absl::OkStatus();
}

absl::Status Records::LogEvaluation(const train::EvalResults& results, int64_t global_step) {
  return logger_ == nullptr ? absl::OkStatus() : logger_->LogEvaluationResult(results, global_step);
}

absl::Status Records::Finish(const absl::Status& status, bool success, int64_t global_step) {
  if (logger_ == nullptr) return absl::OkStatus();
  absl::Status recorded;
  if (status.ok() && progress_->ExamplesPerSecond()) {
    recorded = logger_->LogMetric(
        {.name = "examples_per_sec", .value = *progress_->ExamplesPerSecond(), .global_step = global_step});
  }
  recorded.Update(logger_->OnFinish(status));
  for (const auto& hook : hooks_) recorded.Update(hook->EndRun(success));
  return recorded;
}

}  // namespace official::run
