#include "utils/train/step.h"

#include <algorithm>
#include <numeric>

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

// A float32 scalar that sums `value` over the batches, added to `counts`; without examples there is nothing to add. Its
// name.
std::string Accumulate(const BuiltModel& built, absl::string_view name, Value value,
                       std::vector<compute::Count>& counts) {
  const Value sum = LocalSum(*built.graph, name, {DType::kFloat32, {}});
  if (built.has_examples) counts.push_back({sum, value});
  return sum.node()->name();
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
  step.loss_scale = LossScaleValue(graph, step.scale);
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
void Accumulate(TrainingStep& step) {
  Graph& graph = step.graph();
  const std::vector<Value> results = step.results.All();
  std::vector<compute::RunningSum> sums;
  for (size_t i = 0; i < results.size(); ++i) {
    sums.push_back({LocalSum(graph, absl::StrCat("sum/", i), results[i].type()), results[i]});
  }
  if (step.built.part == StepPart::kMicroBatch) {
    const Value add = graph.Input("add", {DType::kBool, {}});
    step.built.roots.feeds.push_back(add);
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
  const int num_replicas = step.graph().replica_context().num_replicas;
  if (num_replicas == 1) return;
  const Results own = step.results;
  const std::vector<Value> sums = step.pack_sizes ? compute::AllReduce(step.results.All(), *step.pack_sizes)
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
  const Value finite = compute::AllFinite(checked, {.loss_scale = step.scale.dynamic ? step.loss_scale : Value(),
                                                    .barrier = step.graph().replica_context().num_replicas > 1});
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

// Updates the variables, the moving averages, the count of steps and the loss scale.
void Update(Value learning_rate, Value finite, TrainingStep& step) {
  Graph& graph = step.graph();
  BuiltModel& built = step.built;
  std::vector<Node*>& targets = built.roots.targets;
  compute::UpdateInputs inputs(learning_rate);
  inputs.defers_rows = step.server_update && step.server_update->server;
  AddClipping(finite, step, inputs);
  std::vector<compute::VariableGradient> gradients;
  for (size_t i = 0; i < step.variables.size(); ++i) {
    gradients.push_back({step.variables[i], step.results.gradients[i]});
  }
  if (step.updates_elsewhere()) AppendTables(step, gradients);
  const size_t num_targets = targets.size();
  if (!gradients.empty()) {
    for (Node* node : step.model.optimizer(inputs, gradients)) targets.push_back(node);
  }
  const auto updates = std::count_if(targets.begin() + num_targets, targets.end(), [&](const Node* node) {
    return std::any_of(node->inputs().begin(), node->inputs().end(), [&](const Value& input) {
      return std::find(step.variables.begin(), step.variables.end(), input) != step.variables.end();
    });
  });
  if (updates > 1 && step.model.update.ema_decay && graph.replica_context().num_replicas > 1) {
    return graph.Fail(absl::InvalidArgumentError(absl::StrCat(
        "model ", step.model.name, ": its optimizer makes ", updates,
        " updates; with moving averages of the variables on several devices it must update all variables in one")));
  }
  UpdateAverages(inputs.apply, step);
  built.settle = compute::SettleRows(graph);
  for (const auto& node : graph.nodes()) {
    if (inputs.defers_rows && node->Is(compute::op::CatchUpRows)) built.catch_up = node.get();
  }
  std::vector<compute::MovingAverage> averages = step.moving_averages;
  for (size_t i = 0; i < averages.size(); ++i) averages[i].value = step.results.moving_averages[i];
  if (!averages.empty()) {
    targets.push_back(compute::UpdateMovingAverages(averages, step.spec.moving_average_momentum, inputs.apply));
  }
  if (step.updates_elsewhere()) targets.resize(num_targets);  // the graph has the variables, to read and save them
  const TensorType counter{DType::kInt64, {}};
  if (step.server_update && step.server_update->server.value_or(0) > 0) return;
  const Value global_step = graph.Variable({kGlobalStep, counter, compute::Initializer::Zeros(), /*trainable=*/false});
  const Value one =
      step.scale.dynamic ? compute::Cast(finite, DType::kInt64) : graph.Constant(Tensor::Scalar<int64_t>(1));
  if (!step.updates_elsewhere()) step.counts.push_back({global_step, one});
  if (!step.scale.dynamic) return;
  const Value good_steps = graph.Variable({kGoodSteps, counter, compute::Initializer::Zeros(), /*trainable=*/false});
  targets.push_back(compute::UpdateLossScale(step.loss_scale, good_steps, finite));
  built.updated_fetch = static_cast<int>(built.roots.fetches.size());
  built.roots.fetches.push_back(finite);
}

// All of a training step that follows the forward pass. `shown`: the loss and the logged values.
absl::Status AddTraining(const std::vector<Value>& shown, TrainingStep& step) {
  BuiltModel& built = step.built;
  Backward(shown, step);
  RETURN_IF_ERROR(step.graph().status());
  SeparateTables(step);
  const bool is_update = built.part == StepPart::kUpdate;
  if (!built.has_examples && !built.stands_in && !is_update) ReplaceByZeros(step);
  if (built.part != StepPart::kWhole) Accumulate(step);
  if (built.part == StepPart::kMicroBatch) return step.graph().status();
  const bool is_server = step.server_update && step.server_update->server;
  if (is_server) RETURN_IF_ERROR(KeepPlaced(step));
  Reduce(step);
  RETURN_IF_ERROR(step.graph().status());
  const Value learning_rate = step.graph().Input("learning_rate", {DType::kFloat32, {}});
  built.roots.feeds.push_back(learning_rate);
  if (is_server) {
    FeedRows(step);
  } else {
    Show(step);
  }
  const size_t num_variables = step.graph().variables().size();
  if (const Value finite = CheckFinite(step)) Update(learning_rate, finite, step);
  if (is_server) RETURN_IF_ERROR(ListSlots(num_variables, step));
  return step.graph().status();
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
  return BuildModel(model, Mode::kPredict, DType::kFloat32, {}, Batched(spec, 1), /*has_examples=*/true,
                    /*num_replicas=*/1);
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

absl::StatusOr<BuiltModel> BuildModel(const Model& model, Mode mode, DType dtype, const compute::LossScale& loss_scale,
                                      const data::ElementSpec& types, bool has_examples, int num_replicas,
                                      StepPart part, const std::optional<compute::PackSizes>& pack_sizes,
                                      const std::optional<ServerUpdate>& server_update) {
  if (server_update && (model.update.clip_norm || model.update.ema_decay)) {
    return absl::InvalidArgumentError(absl::StrCat("model ", model.name,
                                                   ": with parameter servers gradients cannot be "
                                                   "clipped by their norm, and variables have no moving averages"));
  }
  BuiltModel built;
  built.graph = std::make_unique<Graph>();
  built.part = part;
  built.has_examples = has_examples && part != StepPart::kUpdate;
  built.stands_in = !built.has_examples && model.synchronizes && mode == Mode::kTrain && part != StepPart::kUpdate;
  Graph& graph = *built.graph;
  graph.set_batch_parts(compute::BatchPartsOfReplica(num_replicas));
  std::vector<Value>& feeds = built.roots.feeds;
  // The variables, and which of them have gradients, are known once the model is built, for one example if need be.
  ModelInputs inputs{graph, mode, dtype, AddInputs(graph, "features", types.features), {}, Value()};
  if (mode != Mode::kPredict) inputs.labels = AddInputs(graph, "labels", types.labels);
  if (mode == Mode::kTrain) inputs.random_state = compute::RandomState(graph);
  // Averages change with each step, so that no row's update can wait.
  compute::ReplicaContext context{.in_micro_batches = part != StepPart::kWhole || model.update.ema_decay};
  if (mode == Mode::kTrain && num_replicas > 1) {
    context.num_replicas = num_replicas;
    context.weight = graph.Input("replica_weight", {DType::kFloat32, {}});
  }
  graph.set_replica_context(context);
  Value micro_batch_weight;
  if (part != StepPart::kWhole) micro_batch_weight = graph.Input("micro_batch_weight", {DType::kFloat32, {}});
  if (built.has_examples || built.stands_in) {
    feeds = inputs.features;
    feeds.insert(feeds.end(), inputs.labels.begin(), inputs.labels.end());
    if (mode == Mode::kTrain) feeds.push_back(inputs.random_state);
    for (const Value& weight : {context.weight, micro_batch_weight}) {
      if (weight) feeds.push_back(weight);
    }
  }
  ASSIGN_OR_RETURN(const ModelSpec model_spec, model.model_fn(inputs));
  RETURN_IF_ERROR(graph.status());
  if (mode != Mode::kPredict && model_spec.loss && model_spec.loss.type() != TensorType{DType::kFloat32, {}}) {
    return absl::InvalidArgumentError(absl::StrCat("model ", model.name, ": ModelSpec::loss is ",
                                                   model_spec.loss.type().ToString(),
                                                   "; it must be a float32 scalar, as Mean() makes one"));
  }

  std::vector<Value> shown;
  const auto fetch = [&](const NamedValue& named) {
    const Value value = named.value;
    shown.push_back(value);
    built.fetch_names.push_back(named.name);
    built.fetch_tags.push_back(named.summary_tag.empty() ? named.name : named.summary_tag);
    if (part != StepPart::kWhole) return;  // AddTraining fetches their sums
    built.roots.fetches.push_back(built.has_examples ? value : graph.Constant(Tensor(value.type())));
  };
  if (mode == Mode::kPredict) {
    for (const NamedValue& p : model_spec.predictions) fetch(p);
    return built;
  }
  // A loss that is not finite ends a training step before it changes anything.
  const Value loss = mode == Mode::kTrain ? compute::CheckNumerics(model_spec.loss) : model_spec.loss;
  fetch({"loss", loss});
  if (mode == Mode::kEval && (model.host_metrics || model.eval_samples)) {
    for (const NamedValue& p : model_spec.predictions) fetch(p);
  }
  std::vector<compute::Count> counts;
  if (mode == Mode::kTrain) {
    for (const NamedValue& v : model_spec.logged) fetch(v);
    Value weight = context.weight;
    if (micro_batch_weight) weight = weight ? compute::Mul(weight, micro_batch_weight) : micro_batch_weight;
    TrainingStep step{model, model_spec, loss_scale, pack_sizes, server_update, built, weight, Value(), counts};
    step.examples = inputs.features;
    step.examples.insert(step.examples.end(), inputs.labels.begin(), inputs.labels.end());
    RETURN_IF_ERROR(AddTraining(shown, step));
  }
  for (const MeanMetric& metric : model_spec.metrics) {
    built.metrics.push_back({metric.name, metric.summary_tag.empty() ? metric.name : metric.summary_tag,
                             Accumulate(built, absl::StrCat(metric.name, "/total"), metric.total, counts),
                             Accumulate(built, absl::StrCat(metric.name, "/count"), metric.count, counts)});
  }
  if (!counts.empty()) built.roots.targets.push_back(compute::AssignAdd(counts));
  RETURN_IF_ERROR(graph.status());
  return built;
}

}  // namespace official::train
