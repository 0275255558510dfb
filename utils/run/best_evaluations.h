// BestEvaluations: what --keep_best and --early_stop do with the results of the evaluations of a run.
//   eval/results.txt    the results of all evaluations (evaluation_history.h)
//   best/               the best checkpoints (linked_checkpoints.h), and copies of flags.txt and labels.txt, so that
//                       programs that use what was trained take it as a --model_dir
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "utils/flags/base.h"
#include "utils/train/config.h"
#include "utils/train/evaluations/evaluation_history.h"
#include "utils/train/run_state.h"

namespace official::run {

// True if one of the flags is given.
bool DecidesByEvaluations(const flags::BaseConfig& flags);

// Returns InvalidArgument, with the names that there are, if one of the flags names a metric that is not among `names`,
// those of the results of an evaluation of `model`.
absl::Status CheckMetricNames(const flags::BaseConfig& flags, const std::string& model,
                              const std::vector<std::string>& names);

class BestEvaluations {
 public:
  // Returns FailedPrecondition if the flags let a training keep checkpoints in best/, and what has that name is no
  // directory.
  static absl::Status CheckCanWrite(const flags::BaseConfig& flags, const std::string& model_dir);

  // Reads what earlier evaluations have left in model_dir. Those after the step of `state` do not count, nor does one
  // of this step that was not finished: they are made again. Errors: CheckCanWrite, EvaluationHistory::Read.
  static absl::StatusOr<BestEvaluations> Open(const flags::BaseConfig& flags, const std::string& model_dir,
                                              const train::RunState& state);

  // Takes in the results of an evaluation of `step`, whose checkpoint is in model_dir. Killed at any moment, it is done
  // by the next run, which makes the evaluation again. Errors: those of the file system.
  absl::Status Add(int64_t step, const train::EvalResults& results);

  // Returns why --early_stop ends the training, with the best step; nothing if it does not.
  std::optional<std::string> WhyStop() const;

 private:
  BestEvaluations(const flags::BaseConfig& flags, std::string model_dir)
      : keep_best_(flags.keep_best), early_stop_(flags.early_stop), model_dir_(std::move(model_dir)) {}
  absl::Status KeepBest(int64_t step);

  std::optional<train::MetricRule> keep_best_, early_stop_;
  std::string model_dir_;
  train::EvaluationHistory history_;
};

}  // namespace official::run
