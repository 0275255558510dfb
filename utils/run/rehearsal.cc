#include "utils/run/rehearsal.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "utils/compute/core/status.h"
#include "utils/files/files.h"
#include "utils/logs/benchmark_logger.h"
#include "utils/logs/json.h"
#include "utils/logs/loss_recorder.h"
#include "utils/logs/task_progress.h"
#include "utils/misc/model_helpers.h"
#include "utils/misc/size_text.h"
#include "utils/run/best_evaluations.h"
#include "utils/run/cluster.h"
#include "utils/run/devices.h"
#include "utils/run/estimator_config.h"
#include "utils/run/even_batches.h"
#include "utils/run/learning_rate_range.h"
#include "utils/run/run_time.h"
#include "utils/run/schedule_table.h"
#include "utils/run/session_log.h"
#include "utils/train/checkpoint/checkpoint_dir.h"
#include "utils/train/estimator.h"
#include "utils/train/model_dir.h"
#include "utils/train/rounds.h"

namespace official::run {
namespace {

int64_t StepsOfRun(const Config& config, const SessionOptions& options, const train::EpochSize& epoch) {
  return train::TotalSteps(ScheduleOf(config, options), train::RunState(), epoch);
}

// The mean number of steps of an epoch: in some, training ends with a partial batch.
double StepsPerEpoch(const Config& config, const train::EpochSize& epoch) {
  const train::Schedule epochs = {.train_epochs = std::max(1, config.base.train_epochs),
                                  .epochs_between_evals = config.base.epochs_between_evals};
  return static_cast<double>(train::TotalSteps(epochs, train::RunState(), epoch)) /
         static_cast<double>(epochs.train_epochs);
}

absl::Status PrintSchedule(const Config& config, const train::Model& model, const Input& input,
                           const SessionOptions& options, std::ostream& results) {
  ASSIGN_OR_RETURN(const int batches_per_step, BatchesPerStep(config));
  const train::EpochSize epoch = EpochOf(config, input, batches_per_step);
  const int64_t total_steps = StepsOfRun(config, options, epoch);
  if (total_steps <= 0) {
    return absl::InvalidArgumentError("this run has no steps; give it some with --train_epochs or --max_train_steps");
  }
  const double steps_per_epoch = StepsPerEpoch(config, epoch);
  if (config.base.output != "json") {
    results << ScheduleTable(model.learning_rate, total_steps, steps_per_epoch);
    return absl::OkStatus();
  }
  for (const SchedulePoint& point : SchedulePoints(model.learning_rate, total_steps)) {
    results << logs::DumpJson(logs::Json::Object{{"event", "schedule"},
                                                 {"global_step", point.step},
                                                 {"epoch", static_cast<double>(point.step) / steps_per_epoch},
                                                 {"learning_rate", point.learning_rate}})
            << "\n";
  }
  return absl::OkStatus();
}

// A batch, with the types of its examples.
struct TypedBatch {
  data::ElementSpec spec;
  data::Batch batch;
};

// A source of one batch.
class OneBatch : public data::BatchSource {
 public:
  explicit OneBatch(TypedBatch batch) : spec_(std::move(batch.spec)), batch_(std::move(batch.batch)) {}
  const data::ElementSpec& spec() const override { return spec_; }
  absl::StatusOr<std::optional<data::Batch>> Next() override { return std::exchange(batch_, std::nullopt); }

 private:
  const data::ElementSpec spec_;
  std::optional<data::Batch> batch_;
};

// "float32[32,784], int32[32]".
std::string TypesOf(const data::Batch& batch) {
  std::vector<std::string> types;
  for (const data::Tensors* tensors : {&batch.features, &batch.labels}) {
    for (const compute::Tensor& tensor : *tensors) types.push_back(tensor.type().ToString());
  }
  return absl::StrJoin(types, ", ");
}

double SecondsSince(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// What a session has, but for all that writes.
class Trial {
 public:
  Trial(const Config& config, Input input, std::ostream& results)
      : config_(config), input_(std::move(input)), results_(results) {}

  absl::Status DryRun(train::Model model, const SessionOptions& options) {
    RETURN_IF_ERROR(CheckDirectories());
    RETURN_IF_ERROR(CheckExports(config_, options));
    if (!options.metrics.empty()) RETURN_IF_ERROR(CheckMetricNames(config_.base, options.name, options.metrics));
    const train::EpochSize epoch = EpochOf(config_, input_, /*batches_per_step=*/1);  // of one process
    Tell("run",
         absl::StrCat(config_.base.eval_only ? std::string("one evaluation")
                                             : absl::StrCat(StepsOfRun(config_, options, epoch), " steps in all"),
                      ", batch ", config_.base.batch_size));
    RETURN_IF_ERROR(Open(std::move(model), options));
    const train::Schedule schedule = ScheduleOf(config_, options);
    RunTime time;
    if (config_.base.eval_only) {
      time.evaluations = 1;
    } else {
      const train::RunState& state = estimator_->state();
      ASSIGN_OR_RETURN(const std::string why_ended, WhyRunHasEnded());
      if (why_ended.empty()) {
        time.steps = std::max<int64_t>(0, train::TotalSteps(schedule, state, epoch) - state.global_step);
        time.evaluations = train::EvaluationsLeft(schedule, state, epoch);
      } else {
        Tell("nothing to do", absl::StrCat("trained to step ", state.global_step, ", where ", why_ended));
      }
      ASSIGN_OR_RETURN(time.step_seconds, TryTraining());
    }
    ASSIGN_OR_RETURN(time.evaluation_seconds, TryEvaluation(options));
    TellTime(time);
    Tell("end", "all checks passed; nothing was written to --model_dir");
    return absl::OkStatus();
  }

  absl::Status FindLr(train::Model model, const SessionOptions& options) {
    const std::string flag = model.learning_rate_flag;
    const auto first_step = std::make_shared<int64_t>(0);
    model.learning_rate = [first_step](int64_t step) { return TestedRate(static_cast<int>(step - *first_step)); };
    RETURN_IF_ERROR(Open(std::move(model), options));
    *first_step = estimator_->global_step();
    ASSIGN_OR_RETURN(const data::BatchSourcePtr source, TrainBatches(data::kEndless));
    std::vector<TestedLoss> losses;
    RETURN_IF_ERROR(TestRates(*source, losses));
    const std::optional<size_t> chosen = SteepestDescent(losses);
    if (config_.base.output == "json") {
      for (const TestedLoss& tested : losses) {
        Tell("step", "",
             {{"learning_rate", tested.learning_rate}, {"loss", tested.loss}, {"smoothed_loss", tested.smoothed}});
      }
    } else {
      results_ << LossTable(losses, chosen);
    }
    if (!chosen) {
      Tell("suggestion", absl::StrCat("none: the loss falls no more than it scatters in ", losses.size(),
                                      " steps; that of a larger --batch_size scatters less"));
      return absl::OkStatus();
    }
    const double rate = losses[*chosen].learning_rate;
    Tell("suggestion",
         absl::StrFormat("a learning rate of %.2g, as --print_schedule shows it; %s changes it", rate, flag),
         {{"learning_rate", rate}});
    return absl::OkStatus();
  }

 private:
  // Trains with the tested rates until the last, or until the training diverges.
  absl::Status TestRates(data::BatchSource& source, std::vector<TestedLoss>& losses) {
    logs::TaskProgress progress({.title = "testing learning rates", .total = kTestedRates, .unit = "steps"});
    // Steps that a dynamic loss scale skips have no loss, and are not many.
    for (int tries = 0; tries < 2 * kTestedRates && static_cast<int>(losses.size()) < kTestedRates; ++tries) {
      ASSIGN_OR_RETURN(std::optional<data::Batch> batch, source.Next());
      if (!batch) break;
      std::vector<double> loss;
      const absl::Status trained = TrainStep({input_.spec, *std::move(batch)}, loss);
      // A loss that is not finite is Internal; one ends the test as one that is very large does.
      if (absl::IsInternal(trained) && losses.size() > 1) break;
      RETURN_IF_ERROR(trained);
      progress.Add(1);
      if (!loss.empty() && !AddLoss(losses, loss[0])) break;
    }
    return absl::OkStatus();
  }

  // Prints the line of one item.
  void Tell(const std::string& item, const std::string& text, logs::Json::Object values = {}) {
    if (config_.base.output != "json") {
      results_ << item << ": " << text << std::endl;
      return;
    }
    const char* const event = config_.rehearsal == Rehearsal::kFindLr ? "find_lr" : "dry_run";
    logs::Json::Object object = {{"event", event}, {"item", item}, {"message", text}};
    object.insert(object.end(), values.begin(), values.end());
    results_ << logs::DumpJson(object) << std::endl;
  }

  absl::Status CheckCanWriteModelDir() {
    const std::string& model_dir = config_.train.model_dir;
    RETURN_IF_ERROR(train::CheckModelDir(model_dir));
    if (!config_.base.model_dir_given) RETURN_IF_ERROR(files::CheckOwner(model_dir));
    const std::string log_dir = config_.benchmark.benchmark_log_dir.value_or(model_dir);
    const bool writes_logs =
        !config_.base.eval_only && config_.benchmark.benchmark_logger_type != "BaseBenchmarkLogger";
    if (config_.base.clean) {  // what is there now would not be in the way
      RETURN_IF_ERROR(files::CheckCanWriteIn(model_dir));
      RETURN_IF_ERROR(misc::CheckClean(model_dir, config_.input_paths));
      if (log_dir == model_dir) return absl::OkStatus();
    } else {
      RETURN_IF_ERROR(train::ModelDir::CheckCanWrite(model_dir));
      if (!config_.base.eval_only) RETURN_IF_ERROR(BestEvaluations::CheckCanWrite(config_.base, model_dir));
    }
    return writes_logs ? logs::CheckBenchmarkLogDir(log_dir) : absl::OkStatus();
  }

  absl::Status CheckDirectories() {
    const std::string& model_dir = config_.train.model_dir;
    const bool exists = files::Exists(model_dir);
    // Without the directory, --eval_only makes none.
    if (exists || !config_.base.eval_only) RETURN_IF_ERROR(CheckCanWriteModelDir());
    if (config_.base.export_dir) {
      RETURN_IF_ERROR(files::CheckCanWriteIn(*config_.base.export_dir));
    }
    const absl::string_view state = !exists ? "would be made" : config_.base.clean ? "would be emptied" : "is there";
    Tell("model_dir", absl::StrCat(model_dir, " ", state));
    return absl::OkStatus();
  }

  absl::Status Open(train::Model model, const SessionOptions& options) {
    ASSIGN_OR_RETURN(const Devices devices, DevicesFor(config_));
    ASSIGN_OR_RETURN(auto strategy, MakeStrategy(config_, devices));
    train::EstimatorConfig estimator = EstimatorConfigOf(config_, input_, train::ModelDir::Use::kRead, options);
    // An emptied directory has no checkpoint; neither has one that nobody makes.
    if (config_.base.clean) estimator.model_dir = files::JoinPath(config_.train.model_dir, "emptied");
    if (config_.base.eval_only) estimator.resume = train::Resume::kMust;
    ASSIGN_OR_RETURN(estimator_, train::Estimator::Create(std::move(model), std::move(estimator), std::move(strategy)));
    Tell("device", absl::StrCat(estimator_->strategy().Description(), ", strategy ", estimator_->strategy().name(),
                                ", precision ", flags::DTypeFlagValue(config_.train.dtype), ", ", devices.replica_batch,
                                " of the batch per replica"));
    Tell("variables", estimator_->origin());
    if (config_.base.eval_only) return absl::OkStatus();
    if (config_.rehearsal == Rehearsal::kDryRun) {
      RETURN_IF_ERROR(CheckEvenBatches(config_, input_, ScheduleOf(config_, options), *estimator_));
    }
    return estimator_->CheckBatchFits(BatchesOf(config_, input_));
  }

  // Returns WhyEnded of the run that would be resumed; empty for a new one.
  absl::StatusOr<std::string> WhyRunHasEnded() {
    if (estimator_->origin() == "fresh") return "";
    const train::RunState& state = estimator_->state();
    std::string early_stop;
    if (config_.base.early_stop) {
      ASSIGN_OR_RETURN(const BestEvaluations best, BestEvaluations::Open(config_.base, config_.train.model_dir, state));
      early_stop = best.WhyStop().value_or("");
    }
    return WhyEnded(config_, state, early_stop);
  }

  // Of `epochs` epochs, from where a run would begin.
  absl::StatusOr<data::BatchSourcePtr> TrainBatches(int64_t epochs) {
    data::Position start = estimator_->state().position;
    if (start.index >= input_.num_train_examples) start = {start.epoch + 1, 0};
    return input_.train({.seed = estimator_->state().seed,
                         .start = start,
                         .end_epoch = epochs == data::kEndless ? data::kEndless : start.epoch + epochs,
                         .rows = estimator_->held_rows(train::Mode::kTrain)});
  }

  absl::StatusOr<data::Batch> FirstTrainBatch() {
    ASSIGN_OR_RETURN(const data::BatchSourcePtr source, TrainBatches(/*epochs=*/1));
    ASSIGN_OR_RETURN(std::optional<data::Batch> batch, source->Next());
    if (!batch) {
      return absl::DataLossError(absl::StrCat("the training data (", input_.dataset, ", ", input_.num_train_examples,
                                              " examples) have no batch of --batch_size=", config_.base.batch_size));
    }
    Tell("training data",
         absl::StrCat(input_.dataset, ", ", input_.num_train_examples, " examples; first batch ", TypesOf(*batch)));
    return *std::move(batch);
  }

  absl::Status ShowMemory(const TypedBatch& batch) {
    const auto size = [](int64_t bytes) { return misc::SizeText(static_cast<double>(bytes)); };
    ASSIGN_OR_RETURN(const train::TrainingMemory memory, estimator_->MemoryOfTraining(batch.spec, batch.batch));
    Tell("parameters", absl::StrCat(memory.num_parameters, " in ", memory.num_variables, " variables"),
         {{"num_parameters", memory.num_parameters}});
    logs::Json::Object bytes = {{"parameter_bytes", memory.parameter_bytes},
                                {"other_variable_bytes", memory.other_variable_bytes},
                                {"batch_bytes", memory.batch_bytes}};
    if (memory.intermediate_bytes) bytes.emplace_back("intermediate_bytes", *memory.intermediate_bytes);
    Tell("memory",
         absl::StrCat(
             "parameters ", size(memory.parameter_bytes), ", optimizer and other variables ",
             size(memory.other_variable_bytes), ", intermediate values of a replica's training step ",
             memory.intermediate_bytes ? size(*memory.intermediate_bytes) : "not known before the plugin runs it",
             ", batch ", size(memory.batch_bytes),
             memory.available_bytes < 0 ? "" : absl::StrCat("; free ", size(memory.available_bytes))),
         std::move(bytes));
    return absl::OkStatus();
  }

  // Returns a batch of the largest shape, if `first` has another.
  absl::StatusOr<std::optional<TypedBatch>> LargestBatch(const data::Batch& first) {
    if (!input_.largest_batch) return std::nullopt;
    ASSIGN_OR_RETURN(const data::BatchSourcePtr source, input_.largest_batch->Make());
    ASSIGN_OR_RETURN(std::optional<data::Batch> batch, source->Next());
    if (TypesOf(*batch) == TypesOf(first)) return std::nullopt;
    return TypedBatch{source->spec(), *std::move(batch)};
  }

  // Returns the seconds of a step on the first batch when all is prepared.
  absl::StatusOr<double> TryTraining() {
    ASSIGN_OR_RETURN(data::Batch batch, FirstTrainBatch());
    const TypedBatch first{input_.spec, std::move(batch)};
    ASSIGN_OR_RETURN(const std::optional<TypedBatch> largest, LargestBatch(first.batch));
    RETURN_IF_ERROR(ShowMemory(largest.value_or(first)));
    if (largest) RETURN_IF_ERROR(Train("largest training step", *largest));
    RETURN_IF_ERROR(Train("training step", first));
    std::vector<double> losses;
    const auto begin = std::chrono::steady_clock::now();
    RETURN_IF_ERROR(TrainStep(first, losses));
    return SecondsSince(begin);
  }

  // Appends the loss, unless the step is skipped.
  absl::Status TrainStep(const TypedBatch& batch, std::vector<double>& losses) {
    std::vector<std::unique_ptr<logs::Hook>> hooks;
    hooks.push_back(std::make_unique<logs::LossRecorder<double>>(losses));
    const auto input = [&](data::Position) -> absl::StatusOr<data::BatchSourcePtr> {
      return std::make_unique<OneBatch>(batch);
    };
    return estimator_->Train(input, estimator_->global_step() + 1, hooks);
  }

  absl::Status Train(const std::string& item, const TypedBatch& batch) {
    std::vector<double> losses;
    const auto begin = std::chrono::steady_clock::now();
    RETURN_IF_ERROR(TrainStep(batch, losses));
    // With a dynamic loss scale a step may be skipped, which is no fault.
    const std::string loss = losses.empty() ? "skipped, since gradients overflowed" : absl::StrCat("loss ", losses[0]);
    Tell(item,
         absl::StrFormat("%s, on %s, %.2f s with its preparation", loss, TypesOf(batch.batch), SecondsSince(begin)));
    return absl::OkStatus();
  }

  // Returns the seconds of an evaluation when all is prepared, as if all its batches took as long as the first; nothing
  // if the number of examples is not known.
  absl::StatusOr<std::optional<double>> TryEvaluation(const SessionOptions& options) {
    ASSIGN_OR_RETURN(const data::BatchSourcePtr source, input_.eval(estimator_->held_rows(train::Mode::kEval)));
    ASSIGN_OR_RETURN(std::optional<data::Batch> batch, source->Next());
    if (!batch) return absl::DataLossError(absl::StrCat("the evaluation data (", input_.dataset, ") have no batch"));
    const TypedBatch first{source->spec(), *std::move(batch)};
    ASSIGN_OR_RETURN(const std::optional<TypedBatch> largest, LargestBatch(first.batch));
    if (largest) RETURN_IF_ERROR(Evaluate("largest evaluation step", *largest));
    RETURN_IF_ERROR(Evaluate("evaluation step", first));
    const auto begin = std::chrono::steady_clock::now();
    RETURN_IF_ERROR(EvaluateBatch(first).status());
    const double seconds = SecondsSince(begin);
    const std::optional<int64_t> examples = source->num_examples();
    if (!examples) return std::nullopt;
    const double batches = std::ceil(static_cast<double>(*examples) / static_cast<double>(first.batch.num_examples));
    const auto limit = static_cast<double>(MaxEvalBatches(config_, options).value_or(data::kEndless));
    return std::min(batches, limit) * seconds;
  }

  absl::StatusOr<train::EvalResults> EvaluateBatch(const TypedBatch& batch) {
    const auto input = [&](data::Position) -> absl::StatusOr<data::BatchSourcePtr> {
      return std::make_unique<OneBatch>(batch);
    };
    return estimator_->Evaluate(input, /*max_steps=*/1);
  }

  absl::Status Evaluate(const std::string& item, const TypedBatch& batch) {
    ASSIGN_OR_RETURN(const train::EvalResults metrics, EvaluateBatch(batch));
    std::vector<std::string> texts;
    logs::Json::Object values;
    for (const auto& [name, value] : metrics) {
      if (name == "global_step") continue;
      texts.push_back(absl::StrCat(name, " ", value));
      values.emplace_back(name, value);
    }
    Tell(item, absl::StrCat(absl::StrJoin(texts, ", "), ", on ", TypesOf(batch.batch)), std::move(values));
    return absl::OkStatus();
  }

  void TellTime(const RunTime& time) {
    Tell("time", RunTimeText(time),
         {{"seconds", time.KnownSeconds()},
          {"steps", time.steps},
          {"seconds_per_step", time.step_seconds},
          {"evaluations", time.evaluations},
          {"seconds_per_evaluation", time.evaluation_seconds ? logs::Json(*time.evaluation_seconds) : logs::Json()}});
  }

  const Config& config_;
  const Input input_;
  std::ostream& results_;
  std::unique_ptr<train::Estimator> estimator_;
};

}  // namespace

absl::Status Rehearse(const Config& config, train::Model model, Input input, const SessionOptions& options,
                      std::ostream& results) {
  input = DataOf(config, std::move(input), config.base.batch_size);
  if (config.rehearsal == Rehearsal::kPrintSchedule) return PrintSchedule(config, model, input, options, results);
  const bool finds_lr = config.rehearsal == Rehearsal::kFindLr;
  RETURN_IF_ERROR(CheckAlone(config, finds_lr ? "--find_lr" : "--dry_run"));
  if (finds_lr && config.base.eval_only) {
    return absl::InvalidArgumentError("--find_lr trains, and --eval_only does not; use one of them");
  }
  Trial trial(config, std::move(input), results);
  return finds_lr ? trial.FindLr(std::move(model), options) : trial.DryRun(std::move(model), options);
}

}  // namespace official::run
