#include "utils/train/evaluation.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "utils/compute/core/status.h"
#include "utils/logs/events.h"
#include "utils/logs/log.h"
#include "utils/logs/task_progress.h"

namespace official::train {
namespace {

using compute::Tensor;

absl::Status Stopped(int64_t step) {
  return absl::CancelledError(absl::StrCat("stopped in the evaluation at step ", step, ", whose checkpoint is saved"));
}

// Waits until there is a batch, or the data's end or error. Cancelled if a stop is wanted meanwhile.
absl::Status WaitForData(CheckpointedModel& model, data::BatchSource& source) {
  do {
    const Interruption interruption = model.config().interruption();
    if (interruption == Interruption::kStop) return Stopped(model.state().global_step);
    if (interruption == Interruption::kSave) model.LogSavedOnRequest();
  } while (!source.WaitUntilReady(kAskInterval));
  return absl::OkStatus();
}

// Computes the forward pass of the batch that `program` was asked for.
absl::Status Forward(CheckpointedModel& model, ReplicatedProgram& program) {
  ASSIGN_OR_RETURN(const bool replay, model.replicas().Record(program));
  const absl::Status computed = model.strategy().Run([&](int r) -> absl::Status {
    const ReplicatedProgram::Replica& replica = program.replicas[r];
    if (replica.program == nullptr) return absl::OkStatus();
    std::vector<Tensor> feeds;
    AppendTensors(replica.share, feeds);
    return replica.program->Run(feeds, {.replay = replay, .stop = model.config().stop});
  });
  if (absl::IsCancelled(computed) && model.StopIsWanted()) return Stopped(model.state().global_step);
  return computed;
}

// The sums of an evaluation over its batches.
struct Sums {
  double loss = 0;
  int64_t batches = 0, examples = 0;
  std::map<std::string, std::pair<double, double>> host_metrics;  // total and count
};

absl::Status AddHostMetrics(const CheckpointedModel& model, const ReplicatedProgram& program, Sums& sums) {
  if (!model.model().host_metrics) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::vector<ShareResults> shares, program.FetchPredictions());
  for (const HostMetric& metric : model.model().host_metrics(shares)) {
    auto& [total, count] = sums.host_metrics[metric.name];
    total += metric.total;
    count += metric.count;
  }
  return absl::OkStatus();
}

// The means, by name, without global_step.
absl::StatusOr<EvalResults> ResultsOf(CheckpointedModel& model, const ReplicatedProgram& program, const Sums& sums) {
  EvalResults results = {{"loss", static_cast<float>(sums.loss / static_cast<double>(sums.batches))}};
  for (const BuiltModel::Metric& metric : program.model().metrics) {
    ASSIGN_OR_RETURN(const double value, model.replicas().MetricValue(metric));
    results.emplace_back(metric.name, static_cast<float>(value));
  }
  for (const auto& [name, sum] : sums.host_metrics) {
    results.emplace_back(name, static_cast<float>(sum.first / sum.second));
  }
  std::sort(results.begin(), results.end());
  return results;
}

void LogResults(int64_t step, const EvalResults& results, int64_t examples, double seconds) {
  logs::Json::Object metrics;
  for (const auto& [name, value] : results) {
    if (name != "global_step") metrics.emplace_back(name, logs::FiniteOrNull(value));
  }
  const auto append = [](std::string* out, const auto& r) { absl::StrAppend(out, r.first, " = ", r.second); };
  const double examples_per_sec = static_cast<double>(examples) / seconds;
  logs::LogEvent("evaluation",
                 absl::StrCat("Saving dict for global step ", step, ": ", absl::StrJoin(results, ", ", append)),
                 {{"global_step", step},
                  {"metrics", std::move(metrics)},
                  {"examples", examples},
                  {"seconds", seconds},
                  {"examples_per_sec", examples_per_sec}});
}

}  // namespace

absl::StatusOr<EvalResults> EvaluationLoop(CheckpointedModel& model, const InputFn& input_fn,
                                           std::optional<int64_t> max_steps) {
  const int64_t step = model.state().global_step;
  ASSIGN_OR_RETURN(const data::BatchSourcePtr source, input_fn({}));
  const auto start = std::chrono::steady_clock::now();
  Sums sums;
  ReplicatedProgram* program = nullptr;
  const std::string title = absl::StrCat("evaluating step ", step);
  logs::LogEvent("evaluation_start", title, {{"global_step", step}});
  // How many examples a limited number of batches has is not known.
  logs::TaskProgress progress(
      {.title = title, .total = max_steps ? 0 : source->num_examples().value_or(0), .unit = "examples"});
  while (!max_steps || sums.batches < *max_steps) {
    RETURN_IF_ERROR(WaitForData(model, *source));
    ASSIGN_OR_RETURN(const std::optional<data::Batch> batch, source->Next());
    if (!batch) break;
    const bool first = program == nullptr;
    ASSIGN_OR_RETURN(program, model.ProgramFor(Mode::kEval, source->spec(), *batch));
    if (first) RETURN_IF_ERROR(model.replicas().ResetSums());
    RETURN_IF_ERROR(Forward(model, *program));
    ASSIGN_OR_RETURN(const double loss, program->MeanFetch(0));
    if (!std::isfinite(loss)) return ExplainNonFinite("the loss of the evaluation", model, *program);
    sums.loss += loss;
    ++sums.batches;
    sums.examples += batch->num_examples;
    progress.Set(sums.examples);
    RETURN_IF_ERROR(AddHostMetrics(model, *program, sums));
  }
  if (program == nullptr) return absl::DataLossError("there is nothing to evaluate on: the data set is empty");

  ASSIGN_OR_RETURN(EvalResults results, ResultsOf(model, *program, sums));
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  LOG(INFO) << absl::StrFormat("evaluated %d examples in %.3f s: %.1f examples/s", sums.examples, seconds,
                               static_cast<double>(sums.examples) / seconds);
  ASSIGN_OR_RETURN(EventWriter* const events, model.dir().EvalEvents());
  RETURN_IF_ERROR(events->AddScalars(step, std::vector<EventWriter::Scalar>(results.begin(), results.end())));
  RETURN_IF_ERROR(events->Flush());
  results.emplace_back("global_step", step);
  std::sort(results.begin(), results.end());
  LogResults(step, results, sums.examples, seconds);
  return results;
}

absl::Status ExplainNonFinite(absl::string_view what, CheckpointedModel& model, ReplicatedProgram& program) {
  absl::Status found = model.CheckFinite(*program.model().graph);
  if (found.ok()) {
    found = model.strategy().Run([&](int r) -> absl::Status {
      if (r >= static_cast<int>(program.replicas.size())) return absl::OkStatus();
      const ReplicatedProgram::Replica& replica = program.replicas[r];
      if (replica.program == nullptr) return absl::OkStatus();
      std::vector<Tensor> feeds;
      AppendTensors(replica.share, feeds);
      return replica.program->Run(feeds, {.check_numerics = true});
    });
  }
  const absl::string_view reason = found.ok() ? "what is averaged is finite" : found.message();
  const absl::StatusCode code = absl::IsDataLoss(found) ? absl::StatusCode::kDataLoss : absl::StatusCode::kInternal;
  return absl::Status(code, absl::StrCat(what, " is not finite: ", reason, ". Train again with a lower ",
                                         model.model().learning_rate_flag,
                                         model.config().dtype == compute::DType::kFloat16 ? " or --dtype=bf16" : "",
                                         ", from an earlier checkpoint if there is one"));
}

}  // namespace official::train
