#include "utils/run/estimator_config.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "utils/misc/stop_signals.h"
#include "utils/run/training_data.h"

namespace official::run {

train::Interruption AskSignals() {
  if (misc::StopSignalReceived() != 0) return train::Interruption::kStop;
  return misc::TakeSaveRequest() ? train::Interruption::kSave : train::Interruption::kNone;
}

train::EstimatorConfig EstimatorConfigOf(const Config& config, const Input& input, train::ModelDir::Use use,
                                         const SessionOptions& options) {
  train::EstimatorConfig estimator{config.train};
  estimator.dataset = input.dataset;
  estimator.training_data = DescribeTrainingData(input);
  estimator.facts = input.facts;
  estimator.use = use;
  estimator.trains = use != train::ModelDir::Use::kEvaluate && !config.base.eval_only;
  if (estimator.trains || (config.base.eval_only && input.evaluates_fingerprint)) {
    estimator.facts.push_back(TrainingDataFact(input.fingerprint, estimator.trains));
  }
  if (use == train::ModelDir::Use::kEvaluate) estimator.resume = train::Resume::kMust;
  estimator.warm_start = options.fine_tune;
  estimator.mismatch_hint = options.mismatch_hint;
  if (config.base.clean) estimator.what_continues = "the same command without --clean";
  if (config.train.resume == train::Resume::kNever) {
    estimator.what_continues = "the same command without --resume=never";
  }
  estimator.servers = {.sync_replicas = config.cluster.sync_replicas,
                       .replicas_to_aggregate = config.cluster.replicas_to_aggregate,
                       .max_gradient_staleness = config.cluster.max_gradient_staleness,
                       .placement = config.cluster.ps_placement};
  estimator.batch_size = config.base.batch_size;
  estimator.interruption = AskSignals;
  estimator.stop = &misc::StopSignalFlag();
  return estimator;
}

train::Schedule ScheduleOf(const Config& config, const SessionOptions& options) {
  return {.train_epochs = config.base.train_epochs,
          .epochs_between_evals = config.base.epochs_between_evals,
          .steps = options.steps,
          .max_train_steps = config.performance.max_train_steps};
}

absl::Status CheckExports(const Config& config, const SessionOptions& options) {
  const std::string flag = config.base.export_dir        ? absl::StrCat("--export_dir=", *config.base.export_dir)
                           : config.base.save_meta_graph ? "--save_meta_graph"
                                                         : "";
  if (flag.empty() || options.serving_graph != nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(flag, ": ", config.program, " has no graph of predictions to export; leave it out"));
}

train::EpochSize EpochOf(const Config& config, const Input& input, int batches_per_step) {
  train::EpochSize epoch = {.num_examples = input.num_train_examples,
                            .batch_size = int64_t{config.base.batch_size} * batches_per_step,
                            .across_epochs = input.across_epochs,
                            .carries_over = input.carries_over};
  if (input.steps_per_epoch) epoch.steps = (*input.steps_per_epoch + batches_per_step - 1) / batches_per_step;
  return epoch;
}

std::optional<int64_t> MaxEvalBatches(const Config& config, const SessionOptions& options) {
  return options.evaluates_all ? std::nullopt : config.performance.max_train_steps;
}

}  // namespace official::run
