#include "utils/train/keras/model.h"

#include <cstring>
#include <functional>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/data/batch.h"
#include "utils/logs/hook.h"
#include "utils/train/keras/weights.h"

namespace official::keras {
namespace {

using compute::Tensor;

// Sums the losses of an epoch's steps, and keeps its metrics, which are means since it began.
class EpochHook : public logs::Hook {
 public:
  explicit EpochHook(bool wants_metrics) : wants_metrics_(wants_metrics) {}

  logs::StepRequest BeforeStep(int64_t, logs::TimePoint) override { return {.loss = true, .tensors = wants_metrics_}; }
  absl::Status AfterStep(const logs::StepInfo& step) override {
    loss_ += step.loss.value_or(0) * static_cast<double>(step.examples);
    examples_ += step.examples;
    metrics_.assign(step.tensors.begin(), step.tensors.end());
    return absl::OkStatus();
  }

  int64_t examples() const { return examples_; }
  // The mean loss over the examples, then the metrics.
  Logs Results() const {
    Logs results = {{"loss", loss_ / static_cast<double>(examples_)}};
    for (const auto& metric : metrics_) {
      if (metric.first != "learning_rate") results.push_back(metric);
    }
    return results;
  }

 private:
  const bool wants_metrics_;
  double loss_ = 0;
  int64_t examples_ = 0;
  Logs metrics_;
};

}  // namespace

absl::Status Model::Compile(CompileOptions options) {
  if (estimator_ != nullptr) {
    return absl::FailedPreconditionError(absl::StrCat("model ", name_, " is compiled already; make another Model"));
  }
  RETURN_IF_ERROR(CheckMetrics(name_, options.metrics));
  if (options.strategy == nullptr) {
    ASSIGN_OR_RETURN(options.strategy, distribute::Strategy::Create({}));
  }
  is_chief_ = options.strategy->is_chief();
  const bool writes = !options.model_dir.empty() && is_chief_;
  if (writes) {
    ASSIGN_OR_RETURN(lock_, train::RunLock::Acquire(options.model_dir));
  }
  training_ = std::make_shared<Training>(
      Training{.learning_rate = static_cast<float>(options.learning_rate), .is_chief = is_chief_});
  has_metrics_ = !options.metrics.empty();
  const train::Model model = {
      .name = name_,
      .model_fn = [network = network_, loss = std::move(options.loss), metrics = std::move(options.metrics)](
                      const train::ModelInputs& in) { return BuildSpec(network, loss, metrics, in); },
      .optimizer = std::move(options.optimizer),
      .learning_rate = [training = training_](int64_t) { return training->learning_rate; },
      .learning_rate_flag = "learning_rate"};
  train::EstimatorConfig config;
  config.model_dir = options.model_dir;
  config.use = writes ? train::ModelDir::Use::kWrite : train::ModelDir::Use::kRead;
  config.seed = options.seed;
  ASSIGN_OR_RETURN(estimator_, train::Estimator::Create(model, std::move(config), std::move(options.strategy)));
  return absl::OkStatus();
}

absl::Status Model::CheckCompiled(absl::string_view call) const {
  if (estimator_ != nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("model ", name_, " is not compiled; call Compile before ", call));
}

absl::StatusOr<Logs> Model::TrainEpoch(const data::DatasetPtr& dataset, const FitOptions& options, int64_t epoch) {
  const std::optional<int64_t> steps = options.steps_per_epoch;
  const data::DatasetPtr ordered = options.shuffle ? data::Shuffle(dataset, estimator_->state().seed) : dataset;
  const train::InputFn input = [&](data::Position start) {
    return data::Batches(ordered, {.batch_size = options.batch_size,
                                   .start = start,
                                   .end_epoch = steps ? data::kEndless : begin_epoch_ + epoch + 1,
                                   .rows = estimator_->held_rows(train::Mode::kTrain)});
  };
  std::vector<std::unique_ptr<logs::Hook>> hooks;
  auto hook = std::make_unique<EpochHook>(has_metrics_);
  const EpochHook& epoch_hook = *hook;
  hooks.push_back(std::move(hook));
  const std::optional<int64_t> max_steps = steps ? std::optional(begin_step_ + (epoch + 1) * *steps) : std::nullopt;
  RETURN_IF_ERROR(estimator_->Train(input, max_steps, hooks));
  if (epoch_hook.examples() == 0) {
    return absl::DataLossError(absl::StrCat("epoch ", epoch + 1, " of model ", name_, " has no batch to train on"));
  }
  return epoch_hook.Results();
}

absl::StatusOr<History> Model::Fit(const data::DatasetPtr& dataset, const FitOptions& options) {
  RETURN_IF_ERROR(CheckCompiled("Fit"));
  RETURN_IF_ERROR(CheckSteps("steps_per_epoch", options.steps_per_epoch));
  const auto epochs_done = [&] {
    return options.steps_per_epoch ? (estimator_->global_step() - begin_step_) / *options.steps_per_epoch
                                   : estimator_->state().position.epoch - begin_epoch_;
  };
  spec_ = dataset->spec();
  // The model may have been moved since it was compiled.
  training_->get_weights = [this] { return GetWeights(); };
  training_->set_weights = [this](const Weights& weights) { return SetWeights(weights); };
  training_->save_weights = [this](const std::string& path) { return SaveWeights(path); };
  ASSIGN_OR_RETURN(
      History history,
      RunEpochs(
          {.begin = epochs_done(),
           .end = options.epochs,
           .callbacks = options.callbacks,
           .train = [&](int64_t epoch) { return TrainEpoch(dataset, options, epoch); },
           .validate = options.validation_data == nullptr
                           ? std::function<absl::StatusOr<Logs>()>()
                           : [&] { return Evaluate(options.validation_data, {.batch_size = options.batch_size}); }},
          *training_));
  const data::Position position = estimator_->state().position;
  if (position.index > 0) estimator_->ContinueAt({position.epoch + 1, 0});
  begin_epoch_ = estimator_->state().position.epoch;
  begin_step_ = estimator_->global_step();
  return history;
}

absl::StatusOr<Logs> Model::Evaluate(const data::DatasetPtr& dataset, const EvaluateOptions& options) {
  RETURN_IF_ERROR(CheckCompiled("Evaluate"));
  RETURN_IF_ERROR(CheckSteps("steps", options.steps));
  const train::InputFn input = [&](data::Position) {
    return data::Batches(dataset,
                         {.batch_size = options.batch_size, .rows = estimator_->held_rows(train::Mode::kEval)});
  };
  ASSIGN_OR_RETURN(const train::EvalResults results,
                   estimator_->Evaluate(input, options.steps, train::EvalLoss::kOverExamples));
  Logs logs;
  for (const auto& result : results) {
    if (result.first != "global_step") logs.push_back(result);
  }
  return logs;
}

absl::StatusOr<Tensor> Model::Predict(const data::DatasetPtr& dataset, int64_t batch_size) {
  RETURN_IF_ERROR(CheckCompiled("Predict"));
  if (estimator_->global_step() == 0) {
    return absl::FailedPreconditionError(absl::StrCat("model ", name_, " is not trained; call Fit before Predict"));
  }
  ASSIGN_OR_RETURN(const data::BatchSourcePtr batches, data::Batches(dataset, {.batch_size = batch_size}));
  Tensor all;
  int64_t at = 0;
  for (;;) {
    ASSIGN_OR_RETURN(const std::optional<data::Batch> batch, batches->Next());
    if (!batch) return all;
    ASSIGN_OR_RETURN(const auto results, estimator_->Predict(batches->spec(), batch->features));
    const Tensor& outputs = results[0].second;
    if (at == 0) {
      compute::Shape shape = outputs.shape();
      shape.set_dim(0, dataset->num_examples());
      all = Tensor(outputs.dtype(), shape);
    }
    std::memcpy(static_cast<char*>(all.raw_data()) + at, outputs.raw_data(), outputs.num_bytes());
    at += outputs.num_bytes();
  }
}

absl::StatusOr<std::vector<std::string>> Model::WeightNames() {
  RETURN_IF_ERROR(CheckCompiled("GetWeights"));
  if (!spec_ || estimator_->global_step() == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("model ", name_, " has no weights yet; call Fit before asking for them"));
  }
  ASSIGN_OR_RETURN(const train::BuiltModel predicts, estimator_->BuildForExport(*spec_));
  std::vector<std::string> names;
  for (const compute::VariableSpec& spec : predicts.graph->variables()) names.push_back(spec.name);
  return names;
}

absl::StatusOr<Weights> Model::GetWeights() {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, WeightNames());
  Weights weights;
  for (const std::string& name : names) {
    ASSIGN_OR_RETURN(weights[name], estimator_->Variable(name));
  }
  return weights;
}

absl::Status Model::SetWeights(const Weights& weights) {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, WeightNames());
  RETURN_IF_ERROR(CheckWeights(name_, names, weights));
  for (const auto& [name, value] : weights) RETURN_IF_ERROR(estimator_->SetVariable(name, value));
  return absl::OkStatus();
}

absl::Status Model::SaveWeights(const std::string& path) {
  ASSIGN_OR_RETURN(const Weights weights, GetWeights());
  if (!is_chief_) return absl::OkStatus();
  return WriteWeights(path, weights);
}

absl::Status Model::LoadWeights(const std::string& path) {
  ASSIGN_OR_RETURN(const Weights weights, ReadWeights(path));
  return SetWeights(weights);
}

}  // namespace official::keras
