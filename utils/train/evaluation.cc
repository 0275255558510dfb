#include "utils/train/evaluation.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "utils/compute/core/status.h"
#include "utils/compute/kernel/device.h"
#include "utils/logs/events.h"
#include "utils/logs/log.h"
#include "utils/logs/task_progress.h"
#include "utils/train/evaluations/evaluation_text.h"

namespace official::train {
namespace {

using compute::Tensor;

absl::Status Stopped(int64_t step) {
  return absl::CancelledError(absl::StrCat("stopped in the evaluation at step ", step, ", whose checkpoint is saved"));
}

// Waits until there is a batch, or the data's end or error. Cancelled if a stop is wanted meanwhile.
absl::Status WaitForData(CheckpointedModel& model, data::BatchSource& source) {
  bool is_ready = false;
  do {
    RETURN_IF_ERROR(MeetRequests(model));
    // Several workers ask once a batch, so that all of them ask as often.
    do {
      RETURN_IF_ERROR(model.strategy().CheckWorkers());
      is_ready = source.WaitUntilReady(kAskInterval);
    } while (!is_ready && model.strategy().has_other_workers());
  } while (!is_ready);
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
    return replica.program->Run(feeds, {.replay = replay, .stop = model.stop()});
  });
  if (absl::IsCancelled(computed) && model.StopIsWanted()) return Stopped(model.state().global_step);
  return computed;
}

// The losses of the last batches. Devices with memory of their own may still be computing them, while they are given
// what comes next.
class RecentLosses {
 public:
  // `spec` names the tensors of the batches.
  RecentLosses(CheckpointedModel& model, const data::ElementSpec& spec)
      : model_(model),
        spec_(spec),
        recent_(model.strategy().device(0).uses_host_memory() ? 1 : compute::kMaxRunsBehind + 1) {}

  bool empty() const { return begun_ == read_; }
  bool full() const { return begun_ - read_ == static_cast<int64_t>(recent_.size()); }
  // The number of batches whose losses have been added.
  int64_t begun() const { return begun_; }

  // Adds the loss of a batch on which `program` has just been run; not if this is full.
  absl::Status Add(const ReplicatedProgram& program, const data::Batch& batch) {
    Loss& loss = recent_[begun_ % recent_.size()];
    loss.batch = batch;
    loss.parts.resize(program.replicas.size());
    for (size_t r = 0; r < program.replicas.size(); ++r) {
      const ReplicatedProgram::Replica& replica = program.replicas[r];
      Loss::Part& part = loss.parts[r];
      part.weight = program.Weight(replica);
      if (part.weight == 0) continue;
      if (part.value == nullptr) {
        ASSIGN_OR_RETURN(part.value, model_.strategy().device(static_cast<int>(r)).MakeHostBuffer(sizeof(float)));
      }
      RETURN_IF_ERROR(replica.program->StartFetch(0, *part.value));
    }
    ++begun_;
    return absl::OkStatus();
  }

  struct BatchLoss {
    double mean;  // over all examples of the batch
    int64_t examples;
  };
  // Removes the oldest loss, which must be there, and returns it.
  absl::StatusOr<BatchLoss> Remove() {
    Loss& loss = recent_[read_++ % recent_.size()];
    std::vector<double> parts;
    for (const Loss::Part& part : loss.parts) {
      parts.push_back(0);
      if (part.weight == 0) continue;
      ASSIGN_OR_RETURN(const void* const value, part.value->Wait());
      parts.back() = double{part.weight} * *static_cast<const float*>(value);
    }
    ASSIGN_OR_RETURN(parts, model_.strategy().Gather(std::move(parts)));
    const double mean = std::accumulate(parts.begin(), parts.end(), 0.0);
    if (std::isfinite(mean)) return BatchLoss{mean, loss.batch.num_examples};
    ASSIGN_OR_RETURN(ReplicatedProgram* const program, model_.ProgramFor(Mode::kEval, spec_, loss.batch));
    return ExplainNonFinite("the loss of the evaluation", model_, *program);
  }

 private:
  struct Loss {
    struct Part {
      float weight = 0;
      std::unique_ptr<compute::HostBuffer> value;
    };
    data::Batch batch;
    std::vector<Part> parts;  // by local replica
  };
  CheckpointedModel& model_;
  const data::ElementSpec& spec_;
  std::vector<Loss> recent_;  // a ring
  int64_t begun_ = 0, read_ = 0;
};

// The sums of an evaluation over its batches.
struct Sums {
  double loss = 0, loss_weights = 0;
  int64_t examples = 0;
  std::map<std::string, std::pair<double, double>> host_metrics;  // total and count
};

absl::Status AddHostMetrics(CheckpointedModel& model, const ReplicatedProgram& program, Sums& sums) {
  if (!model.model().host_metrics) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::vector<ShareResults> shares, model.replicas().GatherPredictions(program));
  for (const HostMetric& metric : model.model().host_metrics(shares)) {
    auto& [total, count] = sums.host_metrics[metric.name];
    total += metric.total;
    count += metric.count;
  }
  return absl::OkStatus();
}

// Adds examples of the batch while there are fewer than --eval_samples. The chief's first replica has a batch's first.
absl::Status AddSamples(CheckpointedModel& model, const ReplicatedProgram& program, EvalSamples& samples) {
  const int64_t missing = model.config().eval_samples - static_cast<int64_t>(samples.rows.size());
  const ReplicatedProgram::Replica& first = program.replicas[0];
  if (!model.model().eval_samples || !model.dir().writes_evaluations() || missing <= 0 || first.program == nullptr) {
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const data::Tensors predictions, model.replicas().FetchPredictions(first));
  Append(model.model().eval_samples(first.share, predictions, missing), samples);
  return absl::OkStatus();
}

// The means, by name, without global_step.
absl::StatusOr<EvalResults> ResultsOf(CheckpointedModel& model, const ReplicatedProgram& program, const Sums& sums) {
  EvalResults results = {{"loss", static_cast<float>(sums.loss / sums.loss_weights)}};
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
    if (name != "global_step") metrics.emplace_back(name, value);
  }
  const double examples_per_sec = static_cast<double>(examples) / seconds;
  logs::LogEvent("evaluation", SavingDict(step, results),
                 {{"global_step", step},
                  {"metrics", std::move(metrics)},
                  {"examples", examples},
                  {"seconds", seconds},
                  {"examples_per_sec", examples_per_sec}});
}

absl::StatusOr<EvalResults> Evaluate(CheckpointedModel& model, const InputFn& input_fn,
                                     std::optional<int64_t> max_steps, EvalLoss eval_loss) {
  const int64_t step = model.state().global_step;
  ASSIGN_OR_RETURN(const data::BatchSourcePtr source, input_fn({}));
  const auto start = std::chrono::steady_clock::now();
  Sums sums;
  EvalSamples samples;
  ReplicatedProgram* program = nullptr;
  const std::string title = absl::StrCat("evaluating step ", step);
  logs::LogEvent("evaluation_start", title, {{"global_step", step}});
  // How many examples a limited number of batches has is not known.
  logs::TaskProgress progress(
      {.title = title, .total = max_steps ? 0 : source->num_examples().value_or(0), .unit = "examples"});
  RecentLosses losses(model, source->spec());
  const auto add_oldest_loss = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(const RecentLosses::BatchLoss loss, losses.Remove());
    const double weight = eval_loss == EvalLoss::kOverExamples ? static_cast<double>(loss.examples) : 1;
    sums.loss += weight * loss.mean;
    sums.loss_weights += weight;
    return absl::OkStatus();
  };
  while (!max_steps || losses.begun() < *max_steps) {
    RETURN_IF_ERROR(WaitForData(model, *source));
    ASSIGN_OR_RETURN(const std::optional<data::Batch> batch, source->Next());
    if (!batch) break;
    const bool first = program == nullptr;
    ASSIGN_OR_RETURN(program, model.ProgramFor(Mode::kEval, source->spec(), *batch));
    if (first) RETURN_IF_ERROR(model.replicas().ResetSums());
    RETURN_IF_ERROR(Forward(model, *program));
    RETURN_IF_ERROR(losses.Add(*program, *batch));
    if (losses.full()) RETURN_IF_ERROR(add_oldest_loss());
    sums.examples += batch->num_examples;
    progress.Set(sums.examples);
    RETURN_IF_ERROR(AddHostMetrics(model, *program, sums));
    RETURN_IF_ERROR(AddSamples(model, *program, samples));
  }
  while (!losses.empty()) RETURN_IF_ERROR(add_oldest_loss());
  if (program == nullptr) return absl::DataLossError("there is nothing to evaluate on: the data set is empty");

  ASSIGN_OR_RETURN(EvalResults results, ResultsOf(model, *program, sums));
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  LOG(INFO) << absl::StrFormat("evaluated %d examples in %.3f s: %.1f examples/s", sums.examples, seconds,
                               static_cast<double>(sums.examples) / seconds);
  if (model.dir().writes_evaluations()) {
    ASSIGN_OR_RETURN(EventWriter* const events, model.dir().EvalEvents());
    RETURN_IF_ERROR(events->AddScalars(step, std::vector<EventWriter::Scalar>(results.begin(), results.end())));
    RETURN_IF_ERROR(model.dir().AddEvalSamples(step, std::move(samples)));
    RETURN_IF_ERROR(events->Flush());
  }
  results.emplace_back("global_step", step);
  std::sort(results.begin(), results.end());
  LogResults(step, results, sums.examples, seconds);
  return results;
}

}  // namespace

absl::StatusOr<EvalResults> EvaluationLoop(CheckpointedModel& model, const InputFn& input_fn,
                                           std::optional<int64_t> max_steps, EvalLoss eval_loss) {
  absl::StatusOr<EvalResults> results = Evaluate(model, input_fn, max_steps, eval_loss);
  // Cancelled: all workers stop, or another one has failed.
  if (!results.ok() && !absl::IsCancelled(results.status())) model.strategy().Fail(results.status().message());
  return results;
}

absl::Status MeetRequests(CheckpointedModel& model) {
  ASSIGN_OR_RETURN(const WorkerAgreement::Agreed agreed, model.agreement().Agree(/*save_is_due=*/false));
  if (agreed.interruption == Interruption::kStop) return Stopped(model.state().global_step);
  if (agreed.interruption == Interruption::kSave) model.LogSavedOnRequest();
  return model.strategy().CheckWorkers();
}

absl::Status ExplainNonFinite(absl::string_view what, CheckpointedModel& model, ReplicatedProgram& program) {
  absl::Status found = model.CheckFinite(*program.model().graph);
  // Sums that are not finite are a consequence.
  if (found.ok()) found = model.replicas().ResetSums();
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
