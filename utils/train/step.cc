#include "utils/train/step.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/batch_parts.h"
#include "utils/compute/core/status.h"
#include "utils/compute/ops/array/array.h"
#include "utils/compute/ops/check_numerics/check_numerics.h"
#include "utils/compute/ops/collective/collective.h"
#include "utils/compute/ops/dropout/dropout.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/gradients/gradients.h"
#include "utils/compute/ops/l2_loss/l2_loss.h"
#include "utils/compute/ops/loss_scale/loss_scale.h"
#include "utils/compute/ops/optimizer/deferred_adam.h"
#include "utils/train/checkpoint/checkpoint_dir.h"
#include "utils/train/server_step.h"
#include "utils/train/training_step.h"

namespace official::train {
namespace {

using compute::DType;
using compute::Graph;
using compute::Node;
using compute::Shape;
using compute::Tensor;
using compute::TensorType;
using compute::Value;

std::vector<Value> AddInputs(Graph& graph, absl::string_view prefix, const std::vector<data::Leaf>& leaves) {
  std::vector<Value> inputs;
  for (const data::Leaf& leaf : leaves) {
    inputs.push_back(
        graph.Input(leaf.name.empty() ? std::string(prefix) : absl::StrCat(prefix, "/", leaf.name), leaf.type));
  }
  return inputs;
}

// The variable for a sum.
Value LocalSum(Graph& graph, absl::string_view name, const TensorType& type) {
  return graph.Variable({absl::StrCat(kLocalPrefix, name), type, compute::Initializer::Zeros(),
                         /*trainable=*/false,
                         /*per_device=*/true});
}

// The loss scale as a float32 scalar; nothing if it is always 1.
Value LossScaleValue(Graph& graph, const compute::LossScale& scale) {
  if (scale.dynamic) {
    return graph.Variable({kLossScale, {DType::kFloat32, {}}, compute::Initializer::Constant(scale.value), false});
  }
  return scale.value == 1 ? Value() : graph.Constant(Tensor::Scalar(scale.value));
}

// The gradients of the loss, `shown[0]`, and the other values that training needs of the examples, each multiplied by
// its weight in the whole batch.
void Backward(const std::vector<Value>& shown, TrainingStep& step) {
  Graph& graph = step.graph();
  std::vector<Value> trainable;
  for (const auto& node : graph.nodes()) {
    if (node->Is(compute::op::Variable) && graph.variable(*node).trainable) trainable.push_back(node->output(0));
  }
  // The gradient of the loss that the backward pass starts with.
  step.loss_scale = LossScaleValue(graph, step.options.loss_scale);
  Value seed = step.loss_scale;
  if (step.weight) seed = step.loss_scale ? compute::Mul(step.weight, step.loss_scale) : step.weight;
  const std::vector<Value> all =
      seed ? compute::Gradients({shown[0]}, {seed}, trainable) : compute::Gradients(shown[0], trainable);
  for (size_t i = 0; i < trainable.size(); ++i) {
    if (!all[i]) continue;
    step.variables.push_back(trainable[i]);
    step.results.gradients.push_back(all[i]);
  }
  step.moving_averages = step.spec.moving_averages;
  for (const compute::MovingAverage& average : step.moving_averages) {
    step.results.moving_averages.push_back(step.weight ? compute::Mul(average.value, step.weight) : average.value);
  }
  // A model without trainable variables may still gather moving averages.
  const bool only_averages = trainable.empty() && !step.moving_averages.empty();
  if (step.variables.empty() && !only_averages) graph.Fail(compute::NoGradientsError(trainable));
  if (step.built.part == StepPart::kWhole) return;
  for (const Value& value : shown) step.results.shown.push_back(compute::Mul(value, step.weight));
}

// Without examples: zeros, in the order in which the results are computed, which is the order in which the other
// replicas sum theirs.
void ReplaceByZeros(TrainingStep& step) {
  const std::vector<Value> results = step.results.All();
  std::vector<size_t> order(results.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return results[a].node()->id() < results[b].node()->id(); });
  std::vector<Value> zeros(results.size());
  for (const size_t i : order) zeros[i] = step.graph().Constant(Tensor(results[i].type()));
  step.results.Replace(zeros);
}

// A micro-batch adds its results to sums in variables of the replica; the update takes the sums in their place.
void AccumulateMicroBatches(TrainingStep& step) {
  Graph& graph = step.graph();
  const std::vector<Value> results = step.results.All();
  std::vector<compute::RunningSum> sums;
  for (size_t i = 0; i < results.size(); ++i) {
    sums.push_back({LocalSum(graph, absl::StrCat("sum/", i), results[i].type()), results[i]});
  }
  if (step.built.part == StepPart::kMicroBatch) {
    const Value add = graph.Input("add", {DType::kBool, {}});
    step.built.AddFeed(add, Feed::kAdd);
    step.built.roots.targets.push_back(compute::Accumulate(add, sums));
    SumRows(step);
    return;
  }
  std::vector<Value> variables;
  for (const compute::RunningSum& sum : sums) variables.push_back(sum.variable);
  step.results.Replace(variables);
}

// Puts the sums over the replicas into the variables of the sums over the micro-batches, from which a worker with
// several replicas sends them to parameter servers.
void KeepSums(const Results& own, TrainingStep& step) {
  std::vector<compute::RunningSum> sums;
  for (size_t i = 0; i < own.gradients.size(); ++i) sums.push_back({own.gradients[i], step.results.gradients[i]});
  for (size_t i = 0; i < own.moving_averages.size(); ++i) {
    sums.push_back({own.moving_averages[i], step.results.moving_averages[i]});
  }
  if (sums.empty()) return;
  const Value add = step.graph().Constant(Tensor::Scalar(false));
  step.built.roots.targets.push_back(compute::Accumulate(add, sums));
}

// Sums the results over the replicas.
void Reduce(TrainingStep& step) {
  const int num_replicas = step.graph().step_context().num_replicas;
  if (num_replicas == 1) return;
  const Results own = step.results;
  const std::vector<Value> sums = step.options.pack_sizes
                                      ? compute::AllReduce(step.results.All(), *step.options.pack_sizes)
                                      : compute::AllReduce(step.results.All(), num_replicas);
  if (!step.ok()) return;
  step.results.Replace(sums);
  if (step.updates_elsewhere()) KeepSums(own, step);
}

Value UnscaledNorm(const TrainingStep& step) {
  return step.loss_scale ? compute::Div(step.gradient_norm, step.loss_scale) : step.gradient_norm;
}

// What hooks and event files show of the step, beyond the fetches of the forward pass.
void Show(TrainingStep& step) {
  BuiltModel& built = step.built;
  built.roots.fetches.insert(built.roots.fetches.end(), step.results.shown.begin(), step.results.shown.end());
  const std::string& tag = step.model.gradient_norm_tag;
  if (tag.empty() && !step.model.update.clip_norm) return;
  const Value two = step.graph().Constant(Tensor::Scalar(2.0f));
  step.gradient_norm = compute::Sqrt(compute::Mul(compute::L2Loss(step.results.gradients), two));
  built.fetch_names.push_back("gradient_norm");
  built.fetch_tags.push_back(tag.empty() ? "gradient_norm" : tag);
  built.roots.fetches.push_back(UnscaledNorm(step));
}

// A bool scalar: true if all numbers that the update takes are finite. Others end the step before it changes anything;
// with a dynamic loss scale it is skipped. Replicas that share variables wait for each other here: it is the barrier
// between the last read of a variable and its update.
Value CheckFinite(TrainingStep& step) {
  std::vector<Value> checked = step.results.gradients;
  checked.insert(checked.end(), step.results.moving_averages.begin(), step.results.moving_averages.end());
  if (checked.empty()) checked = step.results.shown;  // all variables are tables
  // The squares of finite numbers may be too large.
  if (step.model.update.clip_norm) checked.push_back(step.gradient_norm);
  const Value finite =
      compute::AllFinite(checked, {.loss_scale = step.options.loss_scale.dynamic ? step.loss_scale : Value(),
                                   .barrier = step.graph().step_context().num_replicas > 1});
  if (finite) step.built.roots.targets.push_back(finite.node());
  return finite;
}

// Adds what is done to the gradients on their way into the update: the loss scale is taken off and they are clipped.
// Scaling by clip_norm / max(norm, clip_norm) is part of the division by the loss scale; within the norm it is by 1.
void AddClipping(Value finite, const TrainingStep& step, compute::UpdateInputs& inputs) {
  const auto [clip_norm, clip_value, ema_decay] = step.model.update;
  if (!step.loss_scale && !clip_norm && !clip_value) return;
  const auto constant = [&](double value) { return step.graph().Constant(Tensor::Scalar(static_cast<float>(value))); };
  inputs.loss_scale = step.loss_scale ? step.loss_scale : constant(1);
  inputs.apply = finite;
  inputs.clip_value = clip_value;
  if (!clip_norm) return;
  const Value limit = constant(*clip_norm);
  const Value factor = compute::Div(compute::Maximum(UnscaledNorm(step), limit), limit);
  inputs.loss_scale = compute::Mul(inputs.loss_scale, factor);
}

// Lets the optimizer update the variables.
void ApplyGradients(const compute::UpdateInputs& inputs, TrainingStep& step) {
  std::vector<compute::VariableGradient> gradients;
  for (size_t i = 0; i < step.variables.size(); ++i) {
    gradients.push_back({step.variables[i], step.results.gradients[i]});
  }
  if (step.updates_elsewhere()) AppendTables(step, gradients);
  if (gradients.empty()) return;
  const std::vector<Node*> nodes = step.model.optimizer(inputs, gradients);
  step.built.roots.targets.insert(step.built.roots.targets.end(), nodes.begin(), nodes.end());
  const auto updates = std::count_if(nodes.begin(), nodes.end(), [&](const Node* node) {
    return std::any_of(node->inputs().begin(), node->inputs().end(), [&](const Value& input) {
      return std::find(step.variables.begin(), step.variables.end(), input) != step.variables.end();
    });
  });
  if (updates > 1 && step.model.update.ema_decay && step.graph().step_context().num_replicas > 1) {
    step.graph().Fail(absl::InvalidArgumentError(absl::StrCat(
        "model ", step.model.name, ": its optimizer makes ", updates,
        " updates; with moving averages of the variables on several devices it must update all variables in one")));
  }
}

// Updates the averages of the variables, which have their new values. The variables are those of the optimizer, in its
// order: devices that share variables then divide them in the same way, and none reads what another one changes.
void UpdateAverages(Value apply, TrainingStep& step) {
  if (!step.model.update.ema_decay || step.variables.empty()) return;
  std::vector<compute::MovingAverage> averages;
  for (const Value& variable : step.variables) {
    const Value average = step.graph().Variable(AverageOf(step.graph().variable(*variable.node())));
    averages.push_back({average, variable});
  }
  step.built.roots.targets.push_back(compute::UpdateMovingAverages(averages, *step.model.update.ema_decay, apply));
}

// Updates the moving averages that the model has, such as those of batch normalization.
void UpdateModelAverages(Value apply, TrainingStep& step) {
  std::vector<compute::MovingAverage> averages = step.moving_averages;
  if (averages.empty()) return;
  for (size_t i = 0; i < averages.size(); ++i) averages[i].value = step.results.moving_averages[i];
  step.built.roots.targets.push_back(compute::UpdateMovingAverages(averages, step.spec.moving_average_momentum, apply));
}

// Counts the step, if it is `finite`, and updates a dynamic loss scale.
void CountStep(Value finite, TrainingStep& step) {
  Graph& graph = step.graph();
  const bool is_dynamic = step.options.loss_scale.dynamic;
  const TensorType counter{DType::kInt64, {}};
  const Value global_step = graph.Variable({kGlobalStep, counter, compute::Initializer::Zeros(), /*trainable=*/false});
  const Value one = is_dynamic ? compute::Cast(finite, DType::kInt64) : graph.Constant(Tensor::Scalar<int64_t>(1));
  if (!step.updates_elsewhere()) step.counts.push_back({global_step, one});
  if (!is_dynamic) return;
  const Value good_steps = graph.Variable({kGoodSteps, counter, compute::Initializer::Zeros(), /*trainable=*/false});
  compute::GraphRoots& roots = step.built.roots;
  roots.targets.push_back(compute::UpdateLossScale(step.loss_scale, good_steps, finite));
  step.built.updated_fetch = static_cast<int>(roots.fetches.size());
  roots.fetches.push_back(finite);
}

// Updates the variables, the moving averages, the count of steps and the loss scale.
void Update(Value learning_rate, Value finite, TrainingStep& step) {
  BuiltModel& built = step.built;
  compute::UpdateInputs inputs(learning_rate);
  inputs.defers_rows = step.is_server();
  AddClipping(finite, step, inputs);
  const size_t num_targets = built.roots.targets.size();
  ApplyGradients(inputs, step);
  if (!step.ok()) return;
  UpdateAverages(inputs.apply, step);
  built.settle = compute::SettleRows(step.graph());
  for (const auto& node : step.graph().nodes()) {
    if (inputs.defers_rows && node->Is(compute::op::CatchUpRows)) built.catch_up = node.get();
  }
  UpdateModelAverages(inputs.apply, step);
  // The graph has the variables that other tasks update, to read and save them.
  if (step.updates_elsewhere()) built.roots.targets.resize(num_targets);
  const bool has_global_step = !step.is_server() || *step.options.server_update->server == 0;
  if (has_global_step) CountStep(finite, step);
}

// All of a training step that follows the forward pass. `shown`: the loss and the logged values.
absl::Status AddTraining(const std::vector<Value>& shown, TrainingStep& step) {
  BuiltModel& built = step.built;
  Backward(shown, step);
  RETURN_IF_ERROR(step.graph().status());
  SeparateTables(step);
  const bool is_update = built.part == StepPart::kUpdate;
  if (!built.has_examples && !built.stands_in && !is_update) ReplaceByZeros(step);
  if (built.part != StepPart::kWhole) AccumulateMicroBatches(step);
  if (built.part == StepPart::kMicroBatch) return step.graph().status();
  if (step.is_server()) RETURN_IF_ERROR(KeepPlaced(step));
  Reduce(step);
  RETURN_IF_ERROR(step.graph().status());
  const Value learning_rate = step.graph().Input("learning_rate", {DType::kFloat32, {}});
  built.AddFeed(learning_rate, Feed::kLearningRate);
  if (step.is_server()) {
    FeedRows(step);
  } else {
    Show(step);
  }
  const size_t num_variables = step.graph().variables().size();
  if (const Value finite = CheckFinite(step)) Update(learning_rate, finite, step);
  if (step.is_server()) RETURN_IF_ERROR(ListSlots(num_variables, step));
  return step.graph().status();
}

// Adds the inputs of the model. Its variables, and which of them have gradients, are known once it is built, for one
// example if need be.
ModelInputs AddModelInputs(Mode mode, DType dtype, const data::ElementSpec& types, Graph& graph) {
  ModelInputs inputs{graph, mode, dtype, AddInputs(graph, "features", types.features), {}, Value()};
  if (mode != Mode::kPredict) inputs.labels = AddInputs(graph, "labels", types.labels);
  if (mode == Mode::kTrain) inputs.random_state = compute::RandomState(graph);
  return inputs;
}

// Sets the context of the graph. Returns its inputs for the weights of the replica and the micro-batch, without those
// that are always 1.
std::vector<std::pair<Value, Feed>> AddWeights(const Model& model, Mode mode, const BuildOptions& options,
                                               Graph& graph) {
  const TensorType scalar{DType::kFloat32, {}};
  std::vector<std::pair<Value, Feed>> weights;
  // Averages change with each step, so that no row's update can wait.
  compute::StepContext context{.needs_whole_updates = options.part != StepPart::kWhole || model.update.ema_decay};
  if (mode == Mode::kTrain && options.num_replicas > 1) {
    context.num_replicas = options.num_replicas;
    context.weight = graph.Input("replica_weight", scalar);
    weights.push_back({context.weight, Feed::kReplicaWeight});
  }
  graph.set_step_context(context);
  if (options.part != StepPart::kWhole) {
    weights.push_back({graph.Input("micro_batch_weight", scalar), Feed::kMicroBatchWeight});
  }
  return weights;
}

// Fetches what is shown of a batch: the loss, the logged values and, unless in training, the predictions, if anything
// needs them. Returns these values. With several micro-batches, AddTraining fetches their sums instead.
std::vector<Value> FetchResults(const Model& model, const ModelSpec& spec, Mode mode, BuiltModel& built) {
  std::vector<NamedValue> results;
  // A loss that is not finite ends a training step before it changes anything.
  if (mode == Mode::kTrain) results.push_back({"loss", compute::CheckNumerics(spec.loss)});
  if (mode == Mode::kEval) results.push_back({"loss", spec.loss});
  if (mode == Mode::kTrain) results.insert(results.end(), spec.logged.begin(), spec.logged.end());
  if (mode == Mode::kPredict || (mode == Mode::kEval && (model.host_metrics || model.eval_samples))) {
    results.insert(results.end(), spec.predictions.begin(), spec.predictions.end());
  }
  std::vector<Value> values;
  for (const NamedValue& result : results) {
    values.push_back(result.value);
    built.fetch_names.push_back(result.name);
    built.fetch_tags.push_back(result.summary_tag.empty() ? result.name : result.summary_tag);
    if (built.part != StepPart::kWhole) continue;
    built.roots.fetches.push_back(built.has_examples ? result.value
                                                     : built.graph->Constant(Tensor(result.value.type())));
  }
  return values;
}

// Adds variables for the sums of the metrics over the batches, and to `counts` what is added to them: without examples
// nothing.
void AddMetrics(const std::vector<MeanMetric>& metrics, BuiltModel& built, std::vector<compute::Count>& counts) {
  const auto add_sum = [&](absl::string_view name, Value value) {
    const Value sum = LocalSum(*built.graph, name, {DType::kFloat32, {}});
    if (built.has_examples) counts.push_back({sum, value});
    return sum.node()->name();
  };
  for (const MeanMetric& metric : metrics) {
    built.metrics.push_back({metric.name, metric.summary_tag.empty() ? metric.name : metric.summary_tag,
                             add_sum(absl::StrCat(metric.name, "/total"), metric.total),
                             add_sum(absl::StrCat(metric.name, "/count"), metric.count)});
  }
}

std::vector<data::Leaf> LeavesOf(const std::vector<data::Leaf>& spec, const data::Tensors& tensors) {
  std::vector<data::Leaf> leaves;
  for (size_t i = 0; i < tensors.size(); ++i) {
    leaves.push_back({i < spec.size() ? spec[i].name : absl::StrCat(i), tensors[i].type()});
  }
  return leaves;
}

}  // namespace

compute::VariableSpec AverageOf(const compute::VariableSpec& variable) {
  return {absl::StrCat(variable.name, kAverageSuffix), variable.type, compute::Initializer::Zeros(),
          /*trainable=*/false};
}

absl::StatusOr<BuiltModel> BuildForExport(const Model& model, const data::ElementSpec& spec) {
  return BuildModel(model, Mode::kPredict, DType::kFloat32, Batched(spec, 1));
}

data::ElementSpec Batched(data::ElementSpec spec, int64_t batch_size) {
  for (auto* leaves : {&spec.features, &spec.labels}) {
    for (data::Leaf& leaf : *leaves) leaf.type = data::BatchedType(leaf.type, batch_size);
  }
  return spec;
}

data::ElementSpec TypesOfShare(const data::ElementSpec& spec, const BatchShare& share) {
  return {LeavesOf(spec.features, share.features), LeavesOf(spec.labels, share.labels)};
}

absl::StatusOr<BuiltModel> BuildModel(const Model& model, Mode mode, DType dtype, const data::ElementSpec& types,
                                      const BuildOptions& options) {
  if (options.server_update && (model.update.clip_norm || model.update.ema_decay)) {
    return absl::InvalidArgumentError(absl::StrCat("model ", model.name,
                                                   ": with parameter servers gradients cannot be "
                                                   "clipped by their norm, and variables have no moving averages"));
  }
  BuiltModel built;
  built.graph = std::make_unique<Graph>();
  built.part = options.part;
  const bool takes_examples = options.part != StepPart::kUpdate;
  built.has_examples = options.has_examples && takes_examples;
  built.stands_in = !options.has_examples && takes_examples && model.synchronizes && mode == Mode::kTrain;
  Graph& graph = *built.graph;
  graph.set_batch_parts(compute::BatchPartsOfReplica(options.num_replicas));
  const ModelInputs inputs = AddModelInputs(mode, dtype, types, graph);
  const std::vector<std::pair<Value, Feed>> weights = AddWeights(model, mode, options, graph);
  std::vector<Value> examples = inputs.features;
  examples.insert(examples.end(), inputs.labels.begin(), inputs.labels.end());
  if (built.has_examples || built.stands_in) {
    for (const Value& feature : inputs.features) built.AddFeed(feature, Feed::kFeature);
    for (const Value& label : inputs.labels) built.AddFeed(label, Feed::kLabel);
    if (mode == Mode::kTrain) built.AddFeed(inputs.random_state, Feed::kRandomState);
    for (const auto& [weight, role] : weights) built.AddFeed(weight, role);
  }
  ASSIGN_OR_RETURN(const ModelSpec spec, model.model_fn(inputs));
  RETURN_IF_ERROR(graph.status());
  if (mode != Mode::kPredict && !spec.loss) {
    return absl::InvalidArgumentError(absl::StrCat("model ", model.name, ": ModelSpec::loss is missing"));
  }
  if (mode != Mode::kPredict && spec.loss.type() != TensorType{DType::kFloat32, {}}) {
    return absl::InvalidArgumentError(absl::StrCat("model ", model.name, ": ModelSpec::loss is ",
                                                   spec.loss.type().ToString(),
                                                   "; it must be a float32 scalar, as Mean() makes one"));
  }
  const std::vector<Value> shown = FetchResults(model, spec, mode, built);
  if (mode == Mode::kPredict) return built;
  std::vector<compute::Count> counts;
  if (mode == Mode::kTrain) {
    Value weight;
    for (const auto& [factor, role] : weights) weight = weight ? compute::Mul(weight, factor) : factor;
    TrainingStep step{model, spec, options, built, counts, examples, weight};
    RETURN_IF_ERROR(AddTraining(shown, step));
  }
  AddMetrics(spec.metrics, built, counts);
  if (!counts.empty()) built.roots.targets.push_back(compute::AssignAdd(counts));
  RETURN_IF_ERROR(graph.status());
  return built;
}

}  // namespace official::train
