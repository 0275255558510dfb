#include "utils/train/keras/coordinated_model.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/compute/ops/check_numerics/check_numerics.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/gradients/gradients.h"
#include "utils/data/batch.h"
#include "utils/train/keras/weights.h"

namespace official::keras {
namespace {

using compute::DType;
using compute::Tensor;
using compute::TensorType;
using compute::Value;
using coordinator::ClusterCoordinator;
using coordinator::RemoteValue;
using coordinator::WorkerContext;
using distribute::DistributedValue;
using distribute::ReplicaContext;

// What a training step takes beside its batch: the learning rate and the random state.
const TensorType kLearningRate{DType::kFloat32, {}}, kRandomState{DType::kInt64, {3}};

constexpr char kTrain[] = "train", kEvaluate[] = "evaluate", kPredict[] = "predict";

// Calls of fewer batches share the work better among workers, calls of more take less time to schedule.
constexpr int64_t kCallsPerWorker = 4;

std::vector<Tensor> TensorsOf(const data::Batch& batch, train::Mode mode) {
  std::vector<Tensor> tensors(batch.features.begin(), batch.features.end());
  if (mode != train::Mode::kPredict) tensors.insert(tensors.end(), batch.labels.begin(), batch.labels.end());
  return tensors;
}

const char* StepOf(train::Mode mode) {
  return mode == train::Mode::kTrain ? kTrain : mode == train::Mode::kEval ? kEvaluate : kPredict;
}

}  // namespace

int64_t CoordinatedModel::NamedDataset::num_batches() const {
  return (dataset->num_examples() + options.batch_size - 1) / options.batch_size;
}

std::string CoordinatedModel::NameOf(absl::string_view step, absl::string_view dataset) const {
  return absl::StrCat(name_, "/", step, dataset.empty() ? "" : "/", dataset);
}

absl::Status CoordinatedModel::CheckCompiled(absl::string_view call) const {
  if (options_) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("model ", name_, " is not compiled; call Compile before ", call));
}

absl::StatusOr<const CoordinatedModel::NamedDataset*> CoordinatedModel::FindDataset(const std::string& name) const {
  if (const auto found = datasets_.find(name); found != datasets_.end()) return &found->second;
  return absl::NotFoundError(
      absl::StrCat("model ", name_, " has no data set '", name, "'; add it with AddDataset on all tasks"));
}

absl::Status CoordinatedModel::CheckSize(const std::string& dataset, int64_t of_coordinator) const {
  const int64_t size = datasets_.at(dataset).dataset->num_examples();
  if (size == of_coordinator) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("data set '", dataset, "' of model ", name_, " has ", size,
                                                 " examples on this worker, but ", of_coordinator,
                                                 " on the coordinator; give all tasks the same data"));
}

// ---- On all tasks ----

absl::Status CoordinatedModel::Compile(CompileOptions options) {
  if (options_) {
    return absl::FailedPreconditionError(absl::StrCat("model ", name_, " is compiled already; make another one"));
  }
  if (options.strategy != nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        "model ", name_, " trains on the workers of a coordinator, and CompileOptions has a strategy; leave it out"));
  }
  RETURN_IF_ERROR(CheckMetrics(name_, options.metrics));
  options_ = std::move(options);
  for (const Metric& metric : options_->metrics) metrics_.emplace_back(NameOf(metric.name));
  return absl::OkStatus();
}

absl::Status CoordinatedModel::AddDataset(const std::string& name, data::DatasetPtr dataset,
                                          const DatasetOptions& options) {
  RETURN_IF_ERROR(CheckCompiled("AddDataset"));
  if (options.batch_size < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("data set '", name, "' has batch_size=", options.batch_size, "; it must be at least 1"));
  }
  if (dataset->num_examples() < 1) {
    return absl::DataLossError(absl::StrCat("data set '", name, "' of model ", name_, " has no examples"));
  }
  if (spec_ && *spec_ != dataset->spec()) {
    return absl::InvalidArgumentError(absl::StrCat("data set '", name, "' of model ", name_,
                                                   " has other features or labels than those before; all must have "
                                                   "the same names and types"));
  }
  if (!spec_) {
    spec_ = dataset->spec();
    RegisterSteps();
  }
  datasets_[name] = {dataset, options};
  functions_.RegisterDataset(
      NameOf(kTrain, name),
      [this, name](const distribute::InputContext& context) -> absl::StatusOr<data::BatchSourcePtr> {
        const auto& [source, of] = datasets_.at(name);
        const uint64_t seed = options_->seed + context.input_pipeline_id;
        ASSIGN_OR_RETURN(const int64_t batch_size, context.GetPerReplicaBatchSize(of.batch_size));
        return data::Batches(of.shuffle ? data::Shuffle(source, seed) : source,
                             {.batch_size = batch_size, .end_epoch = data::kEndless, .across_epochs = true});
      });
  using Results = absl::StatusOr<Tensors>;
  functions_.Register(NameOf(kTrain, name),
                      [this, name](WorkerContext& context, absl::Span<const Tensor> state) -> Results {
                        RETURN_IF_ERROR(CheckSize(name, state[2].scalar<int64_t>()));
                        return RunTraining(context, name, state);
                      });
  for (const train::Mode mode : {train::Mode::kEval, train::Mode::kPredict}) {
    functions_.Register(NameOf(StepOf(mode), name),
                        [this, name, mode](WorkerContext& context, absl::Span<const Tensor> batches) -> Results {
                          RETURN_IF_ERROR(CheckSize(name, batches[2].scalar<int64_t>()));
                          return RunOnBatches(context, datasets_.at(name), mode, batches[0].scalar<int64_t>(),
                                              batches[1].scalar<int64_t>());
                        });
  }
  return absl::OkStatus();
}

void CoordinatedModel::RegisterSteps() {
  const auto add = [this](train::Mode mode, auto step) {
    functions_.RegisterStep(NameOf(StepOf(mode)), [this, step](ReplicaContext& context, absl::Span<const Value> in) {
      return (this->*step)(context, in);
    });
  };
  add(train::Mode::kTrain, &CoordinatedModel::TrainStep);
  add(train::Mode::kEval, &CoordinatedModel::EvalStep);
  add(train::Mode::kPredict, &CoordinatedModel::PredictStep);
}

// ---- Steps ----

train::ModelInputs CoordinatedModel::InputsOf(compute::Graph& graph, train::Mode mode,
                                              absl::Span<const Value> inputs) const {
  train::ModelInputs in{graph, mode, DType::kFloat32, {}, {}, Value()};
  const size_t num_features = spec_->features.size();
  for (const Value& feature : inputs.subspan(0, num_features)) in.features.push_back(feature);
  if (mode == train::Mode::kPredict) return in;
  for (const Value& label : inputs.subspan(num_features, spec_->labels.size())) in.labels.push_back(label);
  if (mode == train::Mode::kTrain) in.random_state = inputs.back();
  return in;
}

absl::StatusOr<std::vector<Value>> CoordinatedModel::TrainStep(ReplicaContext& context,
                                                               absl::Span<const Value> inputs) const {
  compute::Graph& graph = context.graph();
  const train::ModelInputs in = InputsOf(graph, train::Mode::kTrain, inputs);
  const train::ModelSpec spec = BuildSpec(network_, options_->loss, options_->metrics, in);
  RETURN_IF_ERROR(graph.status());
  const Value loss = compute::CheckNumerics(spec.loss);
  // The mean of all examples, since the devices have as many.
  const auto num_replicas = static_cast<float>(context.num_replicas_in_sync());
  const Value share = num_replicas == 1 ? loss : compute::Div(loss, graph.Constant(Tensor::Scalar(num_replicas)));
  const std::vector<Value> variables = context.TrainableVariables();
  const std::vector<Value> gradients = compute::Gradients(share, variables);
  std::vector<compute::VariableGradient> updates;
  for (size_t i = 0; i < variables.size(); ++i) updates.push_back({variables[i], gradients[i]});
  context.ApplyGradients(options_->optimizer, inputs[inputs.size() - 2], updates);
  context.UpdateMovingAverages(spec.moving_averages, spec.moving_average_momentum);
  const auto examples = static_cast<float>(in.features[0].shape().dim(0));
  loss_metric_.UpdateState(context, loss, graph.Constant(Tensor::Scalar(examples)));
  for (size_t i = 0; i < metrics_.size(); ++i) {
    metrics_[i].AddSums(context, {spec.metrics[i].total, spec.metrics[i].count});
  }
  return std::vector<Value>{};
}

absl::StatusOr<std::vector<Value>> CoordinatedModel::EvalStep(ReplicaContext& context,
                                                              absl::Span<const Value> inputs) const {
  compute::Graph& graph = context.graph();
  const train::ModelInputs in = InputsOf(graph, train::Mode::kEval, inputs);
  const train::ModelSpec spec = BuildSpec(network_, options_->loss, options_->metrics, in);
  const distribute::MeanUpdate loss = distribute::MeanUpdateOf(
      spec.loss, graph.Constant(Tensor::Scalar(static_cast<float>(in.features[0].shape().dim(0)))));
  std::vector<Value> results = {loss.total, loss.count};
  for (const train::MeanMetric& metric : spec.metrics) results.insert(results.end(), {metric.total, metric.count});
  return results;
}

absl::StatusOr<std::vector<Value>> CoordinatedModel::PredictStep(ReplicaContext& context,
                                                                 absl::Span<const Value> inputs) const {
  const train::ModelInputs in = InputsOf(context.graph(), train::Mode::kPredict, inputs);
  const train::ModelSpec spec = BuildSpec(network_, options_->loss, options_->metrics, in);
  return std::vector<Value>{spec.predictions[0].value};
}

absl::StatusOr<CoordinatedModel::Tensors> CoordinatedModel::RunTraining(WorkerContext& context,
                                                                        const std::string& dataset,
                                                                        absl::Span<const Tensor> state) const {
  ASSIGN_OR_RETURN(std::vector<DistributedValue> inputs, context.NextPerReplica(NameOf(kTrain, dataset)));
  distribute::PerReplica random_states;
  int64_t first = 0;  // of a device's examples, in the batch of all
  for (const Tensor& features : std::get<distribute::PerReplica>(inputs[0]).values) {
    Tensor& random_state = random_states.values.emplace_back(state[1].Clone());
    random_state.data<int64_t>()[2] = first;
    first += features.shape().dim(0);
  }
  inputs.insert(inputs.end(), {state[0], random_states});
  RETURN_IF_ERROR(context.RunPerReplica(NameOf(kTrain), inputs).status());
  return Tensors{};
}

absl::StatusOr<CoordinatedModel::Tensors> CoordinatedModel::RunOnBatches(WorkerContext& context,
                                                                         const NamedDataset& dataset, train::Mode mode,
                                                                         int64_t first, int64_t count) const {
  const int64_t batch_size = dataset.options.batch_size;
  const size_t num_replicas = context.num_replicas_in_sync();
  ASSIGN_OR_RETURN(const data::BatchSourcePtr batches,
                   data::Batches(dataset.dataset, {.batch_size = batch_size, .start = {0, first * batch_size}}));
  Tensors all;
  for (int64_t left = count; left > 0;) {
    std::vector<distribute::PerReplica> inputs;
    int64_t taken = 0;
    for (size_t r = 0; r < num_replicas; ++r) {
      // Devices for which there is no batch any more compute the last one again, for nothing.
      if (left > 0) {
        ASSIGN_OR_RETURN(const std::optional<data::Batch> batch, batches->Next());
        if (!batch) return absl::DataLossError("a data set has become smaller while it was read");
        const Tensors tensors = TensorsOf(*batch, mode);
        inputs.resize(tensors.size());
        for (size_t i = 0; i < tensors.size(); ++i) inputs[i].values.push_back(tensors[i]);
        --left;
        ++taken;
      } else {
        for (distribute::PerReplica& input : inputs) input.values.push_back(input.values.back());
      }
    }
    const std::vector<DistributedValue> arguments(inputs.begin(), inputs.end());
    ASSIGN_OR_RETURN(const std::vector<distribute::PerReplica> results,
                     context.RunPerReplica(NameOf(StepOf(mode)), arguments));
    for (int64_t r = 0; r < taken; ++r) {
      for (const distribute::PerReplica& result : results) all.push_back(result.values[r]);
    }
  }
  return all;
}

// ---- On the coordinator ----

std::vector<TensorType> CoordinatedModel::BatchTypes(train::Mode mode, int64_t batch_size) const {
  std::vector<TensorType> types;
  for (const data::Leaf& leaf : spec_->features) types.push_back(data::BatchedType(leaf.type, batch_size));
  if (mode == train::Mode::kPredict) return types;
  for (const data::Leaf& leaf : spec_->labels) types.push_back(data::BatchedType(leaf.type, batch_size));
  if (mode == train::Mode::kTrain) types.insert(types.end(), {kLearningRate, kRandomState});
  return types;
}

void CoordinatedModel::Attend(const ClusterCoordinator& coordinator) {
  if (coordinator_ == coordinator.id()) return;
  coordinator_ = coordinator.id();
  made_.clear();
  global_step_ = begin_step_ = 0;
  training_.learning_rate = static_cast<float>(options_->learning_rate);
  checkpoints_ = nullptr;
  lock_ = nullptr;
}

absl::Status CoordinatedModel::OpenCheckpoints(ClusterCoordinator& coordinator) {
  ASSIGN_OR_RETURN(auto lock, train::RunLock::Acquire(options_->model_dir));
  ASSIGN_OR_RETURN(auto checkpoints, train::CheckpointManager::Open(coordinator, options_->model_dir));
  ASSIGN_OR_RETURN(const std::optional<int64_t> trained,
                   checkpoints->RestoreLatest({.assert_existing_objects_matched = true}));
  global_step_ = trained.value_or(0);
  lock_ = std::move(lock);
  checkpoints_ = std::move(checkpoints);
  return absl::OkStatus();
}

absl::StatusOr<History> CoordinatedModel::Fit(ClusterCoordinator& coordinator, const std::string& dataset,
                                              const CoordinatedFitOptions& options) {
  RETURN_IF_ERROR(CheckCompiled("Fit"));
  ASSIGN_OR_RETURN(const NamedDataset* const named, FindDataset(dataset));
  if (!options.validation_data.empty()) RETURN_IF_ERROR(FindDataset(options.validation_data).status());
  const int64_t steps = options.steps_per_epoch.value_or(0);
  if (steps < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "`steps_per_epoch`, `validation_steps` or `steps` argument must be provided in `Model.fit`, `Model.evaluate`, "
        "or `Model.predict`: model ",
        name_, " has steps_per_epoch=", steps, ", and workers read data set '", dataset,
        "' without end; give at least 1"));
  }
  if (!options.validation_data.empty()) RETURN_IF_ERROR(CheckSteps("validation_steps", options.validation_steps));
  Attend(coordinator);
  const distribute::InputContext devices = {.num_replicas_in_sync = coordinator.num_replicas_in_sync()};
  ASSIGN_OR_RETURN(const int64_t replica_batch, devices.GetPerReplicaBatchSize(named->options.batch_size));
  RETURN_IF_ERROR(coordinator.CreateVariables(NameOf(kTrain), BatchTypes(train::Mode::kTrain, replica_batch)));
  if (!options_->model_dir.empty() && checkpoints_ == nullptr) {
    RETURN_IF_ERROR(OpenCheckpoints(coordinator));
  }
  if (made_.insert(dataset).second) coordinator.CreatePerWorkerDataset(NameOf(kTrain, dataset));
  training_.get_weights = [&] { return GetWeights(coordinator); };
  training_.set_weights = [&](const Weights& weights) { return SetWeights(coordinator, weights); };
  training_.save_weights = [&](const std::string& path) { return SaveWeights(coordinator, path); };
  ASSIGN_OR_RETURN(
      History history,
      RunEpochs(
          {.begin = (global_step_ - begin_step_) / steps,
           .end = options.epochs,
           .callbacks = options.callbacks,
           .train = [&](int64_t) { return TrainEpoch(coordinator, dataset, steps); },
           .validate = options.validation_data.empty()
                           ? std::function<absl::StatusOr<Logs>()>()
                           : [&] { return Evaluate(coordinator, options.validation_data, options.validation_steps); }},
          training_));
  begin_step_ = global_step_;
  return history;
}

absl::StatusOr<Logs> CoordinatedModel::TrainEpoch(ClusterCoordinator& coordinator, const std::string& dataset,
                                                  int64_t steps) {
  RETURN_IF_ERROR(loss_metric_.ResetState(coordinator));
  for (const coordinator::MeanMetric& metric : metrics_) RETURN_IF_ERROR(metric.ResetState(coordinator));
  const int64_t num_examples = datasets_.at(dataset).dataset->num_examples();
  for (int64_t i = 0; i < steps; ++i) {
    const int64_t state[] = {static_cast<int64_t>(options_->seed), global_step_ + i, 0};
    RETURN_IF_ERROR(
        coordinator
            .Schedule(NameOf(kTrain, dataset), {Tensor::Scalar(training_.learning_rate),
                                                Tensor::Of<int64_t>({3}, state), Tensor::Scalar(num_examples)})
            .status());
  }
  RETURN_IF_ERROR(coordinator.Join());
  global_step_ += steps;
  Logs logs;
  ASSIGN_OR_RETURN(const float loss, loss_metric_.Result(coordinator));
  logs.emplace_back("loss", loss);
  for (size_t i = 0; i < metrics_.size(); ++i) {
    ASSIGN_OR_RETURN(const float mean, metrics_[i].Result(coordinator));
    logs.emplace_back(options_->metrics[i].name, mean);
  }
  if (checkpoints_ != nullptr) RETURN_IF_ERROR(checkpoints_->Save(global_step_));
  return logs;
}

absl::StatusOr<std::vector<CoordinatedModel::Tensors>> CoordinatedModel::RunOnWorkers(ClusterCoordinator& coordinator,
                                                                                      train::Mode mode,
                                                                                      const std::string& dataset,
                                                                                      int64_t count) {
  const NamedDataset& named = datasets_.at(dataset);
  RETURN_IF_ERROR(coordinator.CreateVariables(NameOf(StepOf(mode)), BatchTypes(mode, named.options.batch_size)));
  const Tensor num_examples = Tensor::Scalar(named.dataset->num_examples());
  const int64_t calls = kCallsPerWorker * coordinator.num_workers(), of_call = std::max<int64_t>(1, count / calls);
  std::vector<std::pair<RemoteValue, int64_t>> called;  // with the number of batches
  for (int64_t first = 0; first < count; first += of_call) {
    const int64_t batches = std::min(of_call, count - first);
    ASSIGN_OR_RETURN(RemoteValue value,
                     coordinator.Schedule(NameOf(StepOf(mode), dataset),
                                          {Tensor::Scalar(first), Tensor::Scalar(batches), num_examples}));
    called.emplace_back(std::move(value), batches);
  }
  RETURN_IF_ERROR(coordinator.Join());
  std::vector<Tensors> results;
  for (const auto& [value, batches] : called) {
    ASSIGN_OR_RETURN(const Tensors all, coordinator.Fetch(value));
    const auto each = static_cast<int64_t>(all.size()) / batches;
    for (int64_t i = 0; i < batches; ++i) results.emplace_back(all.begin() + i * each, all.begin() + (i + 1) * each);
  }
  return results;
}

absl::StatusOr<Logs> CoordinatedModel::Evaluate(ClusterCoordinator& coordinator, const std::string& dataset,
                                                std::optional<int64_t> steps) {
  RETURN_IF_ERROR(CheckCompiled("Evaluate"));
  ASSIGN_OR_RETURN(const NamedDataset* const named, FindDataset(dataset));
  RETURN_IF_ERROR(CheckSteps("steps", steps));
  const int64_t all = named->num_batches();
  ASSIGN_OR_RETURN(const std::vector<Tensors> batches,
                   RunOnWorkers(coordinator, train::Mode::kEval, dataset, std::min(steps.value_or(all), all)));
  std::vector<std::pair<double, double>> sums(1 + options_->metrics.size());  // total and count
  for (const Tensors& batch : batches) {
    for (size_t i = 0; i < sums.size(); ++i) {
      sums[i].first += batch[2 * i].scalar<float>();
      sums[i].second += batch[2 * i + 1].scalar<float>();
    }
  }
  Logs logs;
  for (size_t i = 0; i < sums.size(); ++i) {
    logs.emplace_back(i == 0 ? "loss" : options_->metrics[i - 1].name, sums[i].first / sums[i].second);
  }
  return logs;
}

absl::StatusOr<Tensor> CoordinatedModel::Predict(ClusterCoordinator& coordinator, const std::string& dataset) {
  RETURN_IF_ERROR(CheckCompiled("Predict"));
  ASSIGN_OR_RETURN(const NamedDataset* const named, FindDataset(dataset));
  ASSIGN_OR_RETURN(const std::vector<Tensors> batches,
                   RunOnWorkers(coordinator, train::Mode::kPredict, dataset, named->num_batches()));
  std::vector<Tensor> outputs;
  for (const Tensors& batch : batches) outputs.push_back(batch[0]);
  return distribute::ConcatTensors(outputs, /*axis=*/0);
}

// ---- Weights ----

absl::StatusOr<std::vector<std::string>> CoordinatedModel::MakeWeights(ClusterCoordinator& coordinator) const {
  RETURN_IF_ERROR(CheckCompiled("GetWeights"));
  if (!spec_) {
    return absl::FailedPreconditionError(
        absl::StrCat("model ", name_, " has no weights yet; call AddDataset before asking for them"));
  }
  const std::vector<TensorType> types = BatchTypes(train::Mode::kPredict, 1);
  RETURN_IF_ERROR(coordinator.CreateVariables(NameOf(kPredict), types));
  compute::Graph graph;
  std::vector<Value> inputs;
  for (const TensorType& type : types) inputs.push_back(graph.Input(absl::StrCat("input_", inputs.size()), type));
  BuildSpec(network_, options_->loss, options_->metrics, InputsOf(graph, train::Mode::kPredict, inputs));
  RETURN_IF_ERROR(graph.status());
  std::vector<std::string> names;
  for (const compute::VariableSpec& spec : graph.variables()) names.push_back(spec.name);
  return names;
}

absl::StatusOr<Weights> CoordinatedModel::GetWeights(ClusterCoordinator& coordinator) const {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, MakeWeights(coordinator));
  Weights weights;
  for (const std::string& name : names) {
    ASSIGN_OR_RETURN(weights[name], coordinator.ReadVariable(name));
  }
  return weights;
}

absl::Status CoordinatedModel::SetWeights(ClusterCoordinator& coordinator, const Weights& weights) {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, MakeWeights(coordinator));
  RETURN_IF_ERROR(CheckWeights(name_, names, weights));
  for (const auto& [name, value] : weights) RETURN_IF_ERROR(coordinator.AssignVariable(name, value));
  return absl::OkStatus();
}

absl::Status CoordinatedModel::SaveWeights(ClusterCoordinator& coordinator, const std::string& path) const {
  ASSIGN_OR_RETURN(const Weights weights, GetWeights(coordinator));
  return WriteWeights(path, weights);
}

absl::Status CoordinatedModel::LoadWeights(ClusterCoordinator& coordinator, const std::string& path) {
  ASSIGN_OR_RETURN(const Weights weights, ReadWeights(path));
  return SetWeights(coordinator, weights);
}

}  // namespace official::keras
