#include "utils/run/mlperf_hook.h"

#include "utils/compute/core/status.h"
#include "utils/run/report.h"

namespace official::run {
namespace {

logs::Json::Object Block(const logs::RoundInfo& round) {
  return {{"first_epoch_num", round.first_epoch}, {"epoch_count", round.num_epochs}};
}

}  // namespace

absl::Status MlperfHook::Write(const Values& values) {
  for (const auto& [key, value] : values) RETURN_IF_ERROR(log_->Write(key, value));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<MlperfHook>> MlperfHook::Open(const std::string& path, const std::string& benchmark,
                                                             const std::string& metric) {
  ASSIGN_OR_RETURN(auto log, logs::MlperfLog::Open(path));
  std::unique_ptr<MlperfHook> hook(new MlperfHook(std::move(log), metric));
  RETURN_IF_ERROR(hook->Write({{"submission_benchmark", benchmark},
                               {"submission_division", "open"},  // any hyperparameters, any data
                               // Who submits results puts the truth here.
                               {"submission_org", "none"},
                               {"submission_platform", "none"},
                               {"submission_status", "research"},
                               {"cache_clear", false},  // the system's caches are left as they are
                               {"init_start", nullptr},
                               {"init_stop", nullptr},
                               {"run_start", nullptr}}));
  return hook;
}

absl::Status MlperfHook::BeginRun(const logs::RunStart& start) {
  RETURN_IF_ERROR(Write({{"seed", static_cast<int64_t>(start.seed)},
                         {"global_batch_size", start.batch_size},
                         {"gradient_accumulation_steps", start.grad_accum_steps},
                         {"train_samples", start.num_train_examples}}));
  RETURN_IF_ERROR(Write(values_));
  return log_->Begin(start.resumed);
}

absl::Status MlperfHook::BeginRound(const logs::RoundInfo& round) {
  return log_->Write("block_start", nullptr, Block(round));
}

absl::Status MlperfHook::EndRound(const logs::RoundInfo& round) {
  return log_->Write("block_stop", nullptr, Block(round));
}

absl::Status MlperfHook::BeginEvaluation(int64_t epoch) {
  return log_->Write("eval_start", nullptr, {{"epoch_num", epoch}});
}

absl::Status MlperfHook::EndEvaluation(int64_t epoch, absl::Span<const std::pair<std::string, double>> results) {
  RETURN_IF_ERROR(log_->Write("eval_accuracy", MetricOf(results, metric_), {{"epoch_num", epoch}}));
  return log_->Write("eval_stop", nullptr, {{"epoch_num", epoch}});
}

absl::Status MlperfHook::EndRun(bool success) {
  return log_->Write("run_stop", nullptr, {{"status", success ? "success" : "aborted"}});
}

}  // namespace official::run
