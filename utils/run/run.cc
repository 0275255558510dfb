#include "utils/run/run.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <optional>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/distribute/strategy.h"
#include "utils/files/files.h"
#include "utils/flags/default_dirs.h"
#include "utils/logs/benchmark_logger.h"
#include "utils/logs/console.h"
#include "utils/logs/events.h"
#include "utils/logs/hooks_helper.h"
#include "utils/logs/json.h"
#include "utils/logs/log.h"
#include "utils/logs/mlperf_log.h"
#include "utils/logs/progress.h"
#include "utils/logs/task_progress.h"
#include "utils/misc/distribution_utils.h"
#include "utils/misc/model_helpers.h"
#include "utils/misc/stop_signals.h"
#include "utils/misc/tf_config.h"
#include "utils/misc/version.h"
#include "utils/run/report.h"
#include "utils/run/usable_gpus.h"
#include "utils/train/run_lock.h"
#include "utils/train/train_hooks.h"

namespace official::run {
namespace {

train::Interruption AskSignals() {
  if (misc::StopSignalReceived() != 0) return train::Interruption::kStop;
  return misc::TakeSaveRequest() ? train::Interruption::kSave : train::Interruption::kNone;
}

train::Resume ResumeFromFlag(const std::string& flag) {
  if (flag == "never") return train::Resume::kNever;
  return flag == "must" ? train::Resume::kMust : train::Resume::kAuto;
}

// What the run computes on.
struct Devices {
  std::string kind;
  int num_replicas = 1;
  int replica_batch = 0;
};
absl::StatusOr<Devices> DevicesFor(const Config& config) {
  // Several CPU devices are a wish for the CPU.
  const std::optional<int> wanted_gpus = config.performance.num_cpu_devices > 1 ? 0 : config.base.num_gpus;
  ASSIGN_OR_RETURN(const int num_gpus, misc::GetNumGpus(wanted_gpus, UsableGpus));
  Devices devices;
  devices.kind = num_gpus > 0 ? "cuda" : "cpu";
  devices.num_replicas = num_gpus > 0 ? num_gpus : config.performance.num_cpu_devices;
  if (config.performance.tf32 && num_gpus == 0) {
    LOG(WARNING) << "--tf32 changes nothing without a GPU: the CPU computes fp32 in full precision";
  }
  ASSIGN_OR_RETURN(devices.replica_batch, misc::PerDeviceBatchSize(config.base.batch_size, devices.num_replicas,
                                                                   num_gpus > 0 ? "GPUs" : "CPU devices"));
  return devices;
}

absl::StatusOr<std::unique_ptr<train::Estimator>> MakeEstimator(const Config& config, const Devices& devices,
                                                                train::Model model, const Input& input,
                                                                bool write_model_dir, const Task& task = {}) {
  ASSIGN_OR_RETURN(auto strategy,
                   distribute::Strategy::Create(
                       {.device_kind = devices.kind,
                        .num_replicas = devices.num_replicas,
                        .num_threads = config.performance.intra_op_parallelism_threads,
                        .all_reduce_alg = config.performance.all_reduce_alg,
                        .all_reduce_timeout = std::chrono::seconds(config.performance.all_reduce_timeout_secs),
                        .allow_tf32 = config.performance.tf32}));
  return train::Estimator::Create(std::move(model),
                                  {.model_dir = config.base.model_dir,
                                   .dataset = input.dataset,
                                   .facts = input.facts,
                                   .seed = config.base.seed,
                                   .dtype = config.performance.dtype,
                                   .loss_scale = config.performance.loss_scale,
                                   .grad_accum_steps = config.performance.grad_accum_steps,
                                   .save_checkpoints_steps = config.base.save_checkpoints_steps,
                                   .save_checkpoints_secs = config.base.save_checkpoints_secs,
                                   .keep_checkpoint_max = config.base.keep_checkpoint_max,
                                   .save_summary_steps = config.base.log_every_n_steps,
                                   .check_replicas_steps = config.performance.check_replicas_steps,
                                   .time_algorithms = config.performance.winograd,
                                   .flags_text = config.flags_text,
                                   .write_model_dir = write_model_dir,
                                   .resume = ResumeFromFlag(config.base.resume),
                                   .warm_start = task.fine_tune,
                                   .mismatch_hint = task.mismatch_hint,
                                   .interruption = AskSignals,
                                   .stop = &misc::StopSignalFlag()},
                                  std::move(strategy));
}

constexpr char kTrainData[] = "train_data";  // the fact

// `input` with its training data among the facts: they must not change from one run to the next, if the bits matter.
Input WithTrainingData(Input input) {
  input.facts.push_back({.name = kTrainData,
                         .value = input.fingerprint,
                         .difference =
                             [now = input.fingerprint](absl::string_view before) {
                               return absl::StrCat(
                                   "the training data have changed since the checkpoint was written: "
                                   "they were ",
                                   before, ", and are ", now,
                                   ". Training continues on the new data; its results will differ from "
                                   "those of a run with the same data throughout");
                             },
                         .must_match = false});
  return input;
}

// Where the data have fewer examples than when the checkpoint was written, its place in an epoch may be behind the end.
// With the same data it cannot be, and reading them will refuse to begin there.
void ContinueInsideEpoch(const Input& input, train::Estimator& estimator) {
  const data::Position position = estimator.position();
  const train::RunFact& data = estimator.fact(kTrainData);
  const bool same_data = !data.before.empty() && data.before == data.value;
  if (position.index < input.num_train_examples || same_data) return;
  estimator.ContinueAt({position.epoch + 1, 0});
  LOG(WARNING) << "the checkpoint was written after " << position.index << " examples of epoch " << position.epoch + 1
               << ", but the training data have only " << input.num_train_examples
               << " now: that epoch counts as finished";
}

absl::StatusOr<std::unique_ptr<train::RunLock>> LockModelDir(const flags::BaseConfig& base) {
  ASSIGN_OR_RETURN(auto lock, train::RunLock::Acquire(base.model_dir));
  // If the default was missing when the program began, somebody else may have made it meanwhile.
  if (!base.model_dir_given) RETURN_IF_ERROR(files::CheckOwner(base.model_dir));
  return lock;
}

logs::RunInfo RunRecord(const Config& config, const Task& task, const Input& input) {
  logs::RunInfo info{.model_name = task.name,
                     .dataset_name = input.dataset,
                     .test_id = config.benchmark.benchmark_test_id,
                     .run_parameters = {{"batch_size", int64_t{config.base.batch_size}},
                                        {"dtype", std::string(compute::DTypeName(config.performance.dtype))},
                                        {"synthetic_data", config.performance.use_synthetic_data},
                                        {"train_epochs", int64_t{config.base.train_epochs}}},
                     .version = misc::kVersion,
                     .version_git_hash = config.commit};
  info.run_parameters.insert(info.run_parameters.end(), task.run_parameters.begin(), task.run_parameters.end());
  return info;
}

absl::Status Write(const std::vector<std::pair<std::string, logs::Json>>& values, logs::MlperfLog& log) {
  for (const auto& [key, value] : values) RETURN_IF_ERROR(log.Write(key, value));
  return absl::OkStatus();
}

// Opens MLPerf's log and starts its run, of which loading the data is a part.
absl::StatusOr<std::unique_ptr<logs::MlperfLog>> OpenMlperfLog(const std::optional<Task::MlperfLog>& task) {
  if (!task) return logs::MlperfLog::Open(std::nullopt);
  ASSIGN_OR_RETURN(auto log, logs::MlperfLog::Open(task->path));
  RETURN_IF_ERROR(Write({{"submission_benchmark", task->benchmark},
                         {"submission_division", "open"},  // any hyperparameters, any data
                         // Who submits results puts the truth here.
                         {"submission_org", "none"},
                         {"submission_platform", "none"},
                         {"submission_status", "research"},
                         {"cache_clear", false},  // the system's caches are left as they are
                         {"init_start", nullptr},
                         {"init_stop", nullptr},
                         {"run_start", nullptr}},
                        *log));
  return log;
}

// Tells MLPerf's log what its run is, and has it begin.
absl::Status BeginMlperfLog(const Config& config, const Task::MlperfLog& task, const Input& input,
                            const train::Estimator& estimator, logs::MlperfLog& log) {
  RETURN_IF_ERROR(Write({{"seed", static_cast<int64_t>(estimator.seed())},
                         {"global_batch_size", config.base.batch_size},
                         {"gradient_accumulation_steps", config.performance.grad_accum_steps},
                         {"train_samples", input.num_train_examples}},
                        log));
  RETURN_IF_ERROR(Write(task.values(), log));
  return log.Begin(/*resumed=*/estimator.origin() != "fresh");
}

// One evaluation, with what the task adds to it.
absl::StatusOr<train::EvalResults> EvaluateTask(const Config& config, const Task& task, const Input& input,
                                                train::Estimator& estimator) {
  ASSIGN_OR_RETURN(train::EvalResults results, estimator.Evaluate(input.eval, config.performance.max_train_steps));
  if (!task.evaluate_more) return results;
  ASSIGN_OR_RETURN(const train::EvalResults more, task.evaluate_more(estimator));
  results.insert(results.end(), more.begin(), more.end());
  std::sort(results.begin(), results.end());
  return results;
}

// A directory that cannot be written is better found now than after all training.
absl::Status CheckExportDir(const std::string& export_dir) {
  const absl::Status status = files::CheckCanWriteIn(export_dir);
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat("--export_dir=", export_dir, ": ", status.message()));
}

// A run in progress.
class Run {
 public:
  Run(const Config& config, const Task& task, const Input& input, train::Estimator& estimator, logs::MlperfLog& mlperf)
      : config_(config), task_(task), input_(input), estimator_(estimator), mlperf_(mlperf) {}

  bool IsTrained() const {
    const std::optional<int64_t> max_steps = MaxSteps();
    return (!task_.steps && estimator_.position().epoch >= config_.base.train_epochs) ||
           (max_steps && estimator_.global_step() >= *max_steps);
  }

  // Evaluations are due after every epochs_between_evals epochs, or steps, of the whole training, wherever a run began;
  // a run that was stopped between training and evaluation leaves the evaluation to the next.
  bool EvaluationIsDue() const {
    const data::Position position = estimator_.position();
    if (position == data::Position{} || estimator_.evaluated_step() == estimator_.global_step()) return false;
    if (task_.steps) return IsTrained() || estimator_.global_step() % task_.steps->between_evals == 0;
    return IsTrained() || (position.index == 0 && position.epoch % config_.base.epochs_between_evals == 0);
  }

  absl::Status Train(logs::BaseBenchmarkLogger& logger, std::ostream& out);
  bool PassedStopThreshold() const { return passed_stop_threshold_; }

 private:
  absl::Status Rounds(absl::Span<const std::unique_ptr<logs::Hook>> hooks, logs::BaseBenchmarkLogger& logger,
                      std::ostream& out);
  // As PrintEnd tells it, or "failed".
  std::string Outcome(const absl::Status& status) const;
  absl::Status TrainRound(absl::Span<const std::unique_ptr<logs::Hook>> hooks);
  absl::Status PassEmptyRound(int64_t end_epoch);
  absl::StatusOr<train::EvalResults> EvaluateRound();
  // The step at which all training ends.
  std::optional<int64_t> MaxSteps() const {
    const std::optional<int64_t> limit = config_.performance.max_train_steps;
    if (!task_.steps) return limit;
    return std::min(task_.steps->total, limit.value_or(task_.steps->total));
  }
  // The step at which the next train call ends.
  std::optional<int64_t> NextSteps() const {
    if (!task_.steps) return MaxSteps();
    const int64_t between = task_.steps->between_evals;
    return std::min(*MaxSteps(), (estimator_.global_step() / between + 1) * between);
  }
  int64_t EndEpoch() const {
    if (task_.steps) return data::kEndless;
    const int64_t between = config_.base.epochs_between_evals;
    return std::min<int64_t>(config_.base.train_epochs, (estimator_.position().epoch / between + 1) * between);
  }
  int64_t TotalSteps() const;
  // The epoch, from 1, of the last batch.
  int64_t LastEpoch() const {
    const data::Position position = estimator_.position();
    return position.epoch + (position.index > 0 ? 1 : 0);
  }
  // The number of the evaluation that is made now.
  int64_t Round() const {
    const auto rounds = [](int64_t done, int64_t between) { return (done + between - 1) / between; };
    if (task_.steps) return rounds(estimator_.global_step(), task_.steps->between_evals);
    return rounds(LastEpoch(), config_.base.epochs_between_evals);
  }

  const Config& config_;
  const Task& task_;
  const Input& input_;
  train::Estimator& estimator_;
  logs::MlperfLog& mlperf_;
  bool passed_stop_threshold_ = false;
};

int64_t Run::TotalSteps() const {
  const flags::BaseConfig& base = config_.base;
  const data::Position position = estimator_.position();
  const int64_t batch = base.batch_size, between = base.epochs_between_evals, examples = input_.num_train_examples;
  const auto batches = [&](int64_t n) { return (n + batch - 1) / batch; };
  int64_t steps = 0;
  if (task_.steps) {
    return *MaxSteps();
  } else if (input_.steps_per_epoch) {
    // An epoch that has begun has as many steps left as it has examples.
    const double left = static_cast<double>(base.train_epochs - position.epoch) -
                        static_cast<double>(position.index) / static_cast<double>(examples);
    steps = static_cast<int64_t>(std::ceil(left * static_cast<double>(*input_.steps_per_epoch)));
  } else if (input_.across_epochs) {
    // Each train call ends with a batch of what is left.
    for (int64_t epoch = position.epoch; epoch < base.train_epochs;) {
      const int64_t end = std::min<int64_t>(base.train_epochs, (epoch / between + 1) * between);
      steps += batches((end - epoch) * examples - (epoch == position.epoch ? position.index : 0));
      epoch = end;
    }
  } else {
    steps = (base.train_epochs - position.epoch) * batches(examples) - position.index / batch;
  }
  const int64_t total = estimator_.global_step() + steps;
  return std::min(total, MaxSteps().value_or(total));
}

absl::Status Run::TrainRound(absl::Span<const std::unique_ptr<logs::Hook>> hooks) {
  const data::Position before = estimator_.position();
  const int64_t epoch = before.epoch, end_epoch = EndEpoch();
  const logs::Json::Object block = {{"first_epoch_num", epoch + 1}, {"epoch_count", end_epoch - epoch}};
  RETURN_IF_ERROR(mlperf_.Write("block_start", nullptr, block));
  const auto train_input = [&](data::Position start) -> absl::StatusOr<data::BatchSourcePtr> {
    ASSIGN_OR_RETURN(data::BatchSourcePtr batches, input_.train(estimator_.seed(), start, end_epoch));
    const bool ahead = input_.made_by_computing_threads && !estimator_.strategy().device(0).uses_host_memory();
    return data::Prefetch(std::move(batches), ahead ? 2 : 0);
  };
  RETURN_IF_ERROR(estimator_.Train(train_input, NextSteps(), hooks));
  if (estimator_.position() == before) RETURN_IF_ERROR(PassEmptyRound(end_epoch));
  return mlperf_.Write("block_stop", nullptr, block);
}

// A round without a single batch would come again for ever.
absl::Status Run::PassEmptyRound(int64_t end_epoch) {
  const data::Position position = estimator_.position();
  if (end_epoch == data::kEndless) {
    return absl::DataLossError(absl::StrCat("the training data have no batch from example ", position.index,
                                            " of epoch ", position.epoch + 1, " on, so step ",
                                            estimator_.global_step() + 1, " cannot be trained"));
  }
  LOG(WARNING) << "the training data have no batch after example " << position.index << " of epoch "
               << position.epoch + 1 << ": the rest up to epoch " << end_epoch << " counts as finished";
  estimator_.ContinueAt({end_epoch, 0});
  return absl::OkStatus();
}

absl::StatusOr<train::EvalResults> Run::EvaluateRound() {
  const logs::Json::Object epoch = {{"epoch_num", LastEpoch()}};
  RETURN_IF_ERROR(mlperf_.Write("eval_start", nullptr, epoch));
  ASSIGN_OR_RETURN(train::EvalResults results, EvaluateTask(config_, task_, input_, estimator_));
  if (task_.mlperf_log) {
    RETURN_IF_ERROR(mlperf_.Write("eval_accuracy", MetricOf(results, task_.stop_metric), epoch));
  }
  RETURN_IF_ERROR(mlperf_.Write("eval_stop", nullptr, epoch));
  return results;
}

absl::Status Run::Train(logs::BaseBenchmarkLogger& logger, std::ostream& out) {
  const flags::BaseConfig& base = config_.base;
  RETURN_IF_ERROR(logger.LogRunInfo(RunRecord(config_, task_, input_)));

  ASSIGN_OR_RETURN(std::vector<std::unique_ptr<logs::Hook>> hooks,
                   logs::GetTrainHooks(base.hooks, {.model_dir = base.model_dir,
                                                    .batch_size = base.batch_size,
                                                    .logger = &logger,
                                                    .tensors_to_log = task_.tensors_to_log}));
  auto progress = std::make_unique<logs::Progress>(
      logs::ProgressOptions{.format = logs::CurrentLogFormat(),
                            .total_steps = TotalSteps(),
                            .total_epochs = task_.steps ? 0 : base.train_epochs,
                            .log_every_n_steps = base.log_every_n_steps,
                            .tensors = logs::TensorsInLog(base.hooks, task_.tensors_to_log)});
  const logs::Progress& throughput = *progress;
  hooks.push_back(std::move(progress));
  hooks.push_back(train::MakeLossMetricHook(&logger, base.log_every_n_steps));
  hooks.push_back(train::MakeFirstStepHook());

  const absl::Status status = Rounds(hooks, logger, out);
  const std::string outcome = Outcome(status);
  if (status.ok() || outcome == "stopped") {
    PrintEnd(base.output == "json", outcome, estimator_.global_step(), throughput.SummaryFields(), out);
  }
  RETURN_IF_ERROR(status);
  if (throughput.ExamplesPerSecond()) {
    RETURN_IF_ERROR(logger.LogMetric({.name = "examples_per_sec",
                                      .value = *throughput.ExamplesPerSecond(),
                                      .global_step = estimator_.global_step()}));
  }
  logs::Json::Object fields = {{"status", outcome}, {"global_step", estimator_.global_step()}};
  const logs::Json::Object summary = throughput.SummaryFields();
  fields.insert(fields.end(), summary.begin(), summary.end());
  logs::LogEvent("end", absl::StrCat("trained to step ", estimator_.global_step(), ": ", throughput.Summary()),
                 std::move(fields));
  return absl::OkStatus();
}

std::string Run::Outcome(const absl::Status& status) const {
  if (misc::StopSignalReceived() != 0) return "stopped";
  if (!status.ok()) return "failed";
  return passed_stop_threshold_ ? "stop_threshold" : "finished";
}

// Trains and evaluates in turn.
absl::Status Run::Rounds(absl::Span<const std::unique_ptr<logs::Hook>> hooks, logs::BaseBenchmarkLogger& logger,
                         std::ostream& out) {
  const flags::BaseConfig& base = config_.base;
  while (!IsTrained() || EvaluationIsDue()) {
    if (!EvaluationIsDue()) RETURN_IF_ERROR(TrainRound(hooks));
    if (!EvaluationIsDue()) continue;  // no step was gained
    ASSIGN_OR_RETURN(const train::EvalResults results, EvaluateRound());
    RETURN_IF_ERROR(logger.LogEvaluationResult(results, estimator_.global_step()));
    PrintEvaluation(config_.base.output == "json", results, out);
    RETURN_IF_ERROR(estimator_.KeepEvaluatedStep());
    if (task_.evaluated) task_.evaluated(results, Round());
    if (!base.stop_threshold) continue;
    const double metric = MetricOf(results, task_.stop_metric);
    if (misc::PastStopThreshold(base.stop_threshold, metric)) {
      LOG(INFO) << "Stop threshold of " << *base.stop_threshold << " was passed with metric value " << metric;
      passed_stop_threshold_ = true;
      break;
    }
  }
  return absl::OkStatus();
}

void LogStart(const Config& config, const Task& task, const Devices& devices, const Input& input,
              const train::Estimator& estimator) {
  const std::string device = estimator.strategy().Description(), strategy(estimator.strategy().name());
  const std::string precision(flags::DTypeFlagValue(config.performance.dtype));
  const bool resumes = estimator.origin() != "fresh" && !config.base.eval_only;
  logs::LogEvent(resumes ? "resume" : "start",
                 absl::StrCat("device ", device, ", strategy ", strategy, ", precision ", precision, ", batch ",
                              config.base.batch_size, " (", devices.replica_batch, " per replica), data ",
                              input.dataset, ", ", estimator.origin()),
                 {{"model", task.name},
                  {"model_dir", config.base.model_dir},
                  {"dataset", input.dataset},
                  {"device", device},
                  {"strategy", strategy},
                  {"num_replicas", devices.num_replicas},
                  {"dtype", precision},
                  {"batch_size", config.base.batch_size},
                  {"seed", static_cast<int64_t>(estimator.seed())},
                  {"global_step", estimator.global_step()}});
}

absl::Status Export(const Config& config, const Task& task, train::Estimator& estimator) {
  if (!config.base.export_dir) return absl::OkStatus();
  const logs::TaskProgress progress({.title = "writing the SavedModel"});
  ASSIGN_OR_RETURN(const std::string path, task.export_model(estimator, *config.base.export_dir));
  logs::LogEvent("export", absl::StrCat("SavedModel written to: ", path), {{"path", path}});
  return absl::OkStatus();
}

absl::Status TrainAndEvaluate(const Config& config, const Task& task, std::ostream& results) {
  const flags::BaseConfig& base = config.base;
  ASSIGN_OR_RETURN(const Devices devices, DevicesFor(config));
  ASSIGN_OR_RETURN(const auto lock, LockModelDir(base));
  if (base.clean) {
    ASSIGN_OR_RETURN(const bool cleaned, misc::ApplyClean(base.model_dir, {base.data_dir}));
    if (cleaned) {
      LOG(INFO) << "--clean flag set. Removed existing model dir: " << base.model_dir;
    }
  }
  ASSIGN_OR_RETURN(const auto mlperf, OpenMlperfLog(task.mlperf_log));
  ASSIGN_OR_RETURN(const Input input, task.load());
  ASSIGN_OR_RETURN(const auto estimator, MakeEstimator(config, devices, task.model(input), WithTrainingData(input),
                                                       /*write_model_dir=*/true, task));
  RETURN_IF_ERROR(estimator->CheckBatchFits(input.spec, base.batch_size));

  LogStart(config, task, devices, input, *estimator);
  if (estimator->seed() != base.seed) {
    LOG(WARNING) << "--seed=" << base.seed << " is not used: this run started with seed " << estimator->seed();
  }
  ContinueInsideEpoch(input, *estimator);
  Run run(config, task, input, *estimator, *mlperf);
  if (run.IsTrained() && !run.EvaluationIsDue()) {
    LOG(INFO) << "nothing to do: " << base.model_dir << " is trained to step " << estimator->global_step()
              << (task.steps
                      ? absl::StrCat(" of --train_steps=", task.steps->total, "; to continue, raise --train_steps")
                      : absl::StrCat(", ", estimator->position().epoch, " of --train_epochs=", base.train_epochs,
                                     " epochs; to continue, raise --train_epochs"))
              << (config.performance.max_train_steps ? " or --max_train_steps" : "")
              << "; to start again, give --clean or another --model_dir";
    estimator->LogChangedFlags();
    PrintEnd(base.output == "json", "nothing_to_do", estimator->global_step(),
             {{"steps", 0}, {"examples_per_sec", nullptr}}, results);
  } else {
    ASSIGN_OR_RETURN(const auto logger,
                     logs::CreateBenchmarkLogger(config.benchmark.benchmark_logger_type.value_or("BenchmarkFileLogger"),
                                                 config.benchmark.benchmark_log_dir.value_or(base.model_dir)));
    if (task.mlperf_log) RETURN_IF_ERROR(BeginMlperfLog(config, *task.mlperf_log, input, *estimator, *mlperf));
    // Until here there was nothing to save, and a signal has ended the process.
    const misc::StopSignals signals;
    const absl::Status trained = logs::RunWithBenchmarkLogger(*logger, [&] { return run.Train(*logger, results); });
    const bool success = trained.ok() && (run.PassedStopThreshold() || !base.stop_threshold);
    const absl::Status logged = mlperf->Write("run_stop", nullptr, {{"status", success ? "success" : "aborted"}});
    RETURN_IF_ERROR(trained);
    RETURN_IF_ERROR(logged);
    if (misc::StopSignalReceived() != 0) {
      return absl::CancelledError(absl::StrCat("stopped at step ", estimator->global_step(), ", which is saved"));
    }
  }
  return Export(config, task, *estimator);
}

absl::Status NothingTrained(const Config& config) {
  return absl::NotFoundError(
      absl::StrCat("there is no checkpoint in ", config.base.model_dir, "; train first, or name another --model_dir"));
}

absl::Status EvaluateOnly(const Config& config, const Task& task, std::ostream& results) {
  ASSIGN_OR_RETURN(const Devices devices, DevicesFor(config));
  // A mistyped directory is not made.
  if (!files::Exists(config.base.model_dir)) return NothingTrained(config);
  ASSIGN_OR_RETURN(const auto lock, LockModelDir(config.base));
  ASSIGN_OR_RETURN(const Input input, task.load());
  ASSIGN_OR_RETURN(const auto estimator, MakeEstimator(config, devices, task.model(input), input,
                                                       /*write_model_dir=*/true, task));
  if (estimator->origin() == "fresh") return NothingTrained(config);
  LogStart(config, task, devices, input, *estimator);
  absl::StatusOr<train::EvalResults> evaluation;
  {
    const misc::StopSignals signals;
    evaluation = EvaluateTask(config, task, input, *estimator);
  }
  RETURN_IF_ERROR(evaluation.status());
  const bool json = config.base.output == "json";
  PrintEvaluation(json, *evaluation, results);
  PrintEnd(json, "finished", estimator->global_step(), {}, results);
  logs::LogEvent("end", absl::StrCat("evaluated step ", estimator->global_step()),
                 {{"status", "finished"}, {"global_step", estimator->global_step()}});
  return Export(config, task, *estimator);
}

}  // namespace

double MetricOf(const train::EvalResults& results, absl::string_view name) {
  const auto it = std::find_if(results.begin(), results.end(), [&](const auto& r) { return r.first == name; });
  OFFICIAL_CHECK(it != results.end()) << name;
  return it->second;
}

Config ConfigFromFlags(const flags::CommandLine& command_line) {
  return {.base = flags::BaseFromFlags(command_line),
          .performance = flags::PerformanceFromFlags(),
          .benchmark = flags::BenchmarkFromFlags(),
          .flags_text = command_line.AllFlagsText(),
          .taken_from_training = command_line.taken_from_training(),
          .notes = flags::NotesOnFormerDefaults(command_line),
          .warnings = flags::NotesOnUnusedFlags(command_line),
          .commit = command_line.commit()};
}

absl::Status InitLogging(const Config& config) {
  RETURN_IF_ERROR(logs::LogToConsole(config.base.log_format));
  for (const std::string& warning : config.warnings) {
    LOG(WARNING) << warning;
  }
  for (const std::string& note : config.notes) {
    LOG(INFO) << note;
  }
  if (!config.taken_from_training.empty()) {
    LOG(INFO) << "as " << config.base.model_dir << " was trained: " << config.taken_from_training;
  }
  return absl::OkStatus();
}

absl::Status RunTask(const Config& config, const Task& task, std::ostream& results) {
  RETURN_IF_ERROR(misc::CheckTfConfig(std::getenv("TF_CONFIG")));
  if (config.base.export_dir) RETURN_IF_ERROR(CheckExportDir(*config.base.export_dir));
  return config.base.eval_only ? EvaluateOnly(config, task, results) : TrainAndEvaluate(config, task, results);
}

absl::StatusOr<std::unique_ptr<train::Estimator>> OpenTrained(const Config& config, train::Model model,
                                                              std::vector<train::RunFact> facts) {
  ASSIGN_OR_RETURN(Devices devices, DevicesFor(config));
  devices.num_replicas = 1;
  Input input;
  input.facts = std::move(facts);
  return MakeEstimator(config, devices, std::move(model), input, /*write_model_dir=*/false);
}

}  // namespace official::run
