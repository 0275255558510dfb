#include "utils/run/best_evaluations.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "utils/compute/core/status.h"
#include "utils/files/files.h"
#include "utils/logs/log.h"
#include "utils/misc/run_files.h"
#include "utils/train/checkpoint/linked_checkpoints.h"
#include "utils/train/rounds.h"

namespace official::run {
namespace {

constexpr char kDirectory[] = "best";

}  // namespace

bool DecidesByEvaluations(const flags::BaseConfig& flags) { return flags.keep_best || flags.early_stop; }

absl::Status CheckMetricNames(const flags::BaseConfig& flags, const std::string& model,
                              const std::vector<std::string>& names) {
  for (const auto& [flag, rule] : {std::pair("keep_best", &flags.keep_best), {"early_stop", &flags.early_stop}}) {
    if (!*rule || std::find(names.begin(), names.end(), (*rule)->metric) != names.end()) continue;
    return absl::InvalidArgumentError(absl::StrCat("--", flag, ": the evaluations of ", model, " have no metric ",
                                                   (*rule)->metric, "; use one of ", absl::StrJoin(names, ", ")));
  }
  return absl::OkStatus();
}

absl::Status BestEvaluations::CheckCanWrite(const flags::BaseConfig& flags, const std::string& model_dir) {
  return flags.keep_best ? files::CheckDirectoryOrMissing(files::JoinPath(model_dir, kDirectory)) : absl::OkStatus();
}

absl::StatusOr<BestEvaluations> BestEvaluations::Open(const flags::BaseConfig& flags, const std::string& model_dir,
                                                      const train::RunState& state) {
  RETURN_IF_ERROR(CheckCanWrite(flags, model_dir));
  BestEvaluations best(flags, model_dir);
  ASSIGN_OR_RETURN(best.history_, train::EvaluationHistory::Read(model_dir));
  best.history_.ForgetAfter(train::IsEvaluated(state) ? state.global_step : state.global_step - 1);
  return best;
}

absl::Status BestEvaluations::Add(int64_t step, const train::EvalResults& results) {
  history_.Add(step, results);
  RETURN_IF_ERROR(history_.Write(model_dir_));
  return keep_best_ ? KeepBest(step) : absl::OkStatus();
}

absl::Status BestEvaluations::KeepBest(int64_t step) {
  const std::string directory = files::JoinPath(model_dir_, kDirectory);
  ASSIGN_OR_RETURN(std::set<int64_t> steps, train::LinkedSteps(directory));
  steps.insert(step);
  const std::vector<int64_t> best = history_.Best(steps, *keep_best_);
  RETURN_IF_ERROR(train::LinkCheckpoints(model_dir_, directory, best, step));
  RETURN_IF_ERROR(misc::CopyRunFiles(model_dir_, directory));
  if (best.back() == step) {
    LOG(INFO) << "step " << step << " is the best by " << keep_best_->metric << " so far: it is kept in " << directory;
  }
  return absl::OkStatus();
}

std::optional<std::string> BestEvaluations::WhyStop() const {
  if (!early_stop_) return std::nullopt;
  const auto best = history_.BestOf(*early_stop_);
  if (!best || best->evaluations_since < early_stop_->number) return std::nullopt;
  return absl::StrCat(early_stop_->metric, " has not ", early_stop_->increases ? "increased" : "decreased", " in ",
                      best->evaluations_since, best->evaluations_since == 1 ? " evaluation" : " evaluations",
                      "; the best was ", best->value, " at step ", best->step);
}

}  // namespace official::run
