#include "utils/train/program_builder.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/batch_parts.h"
#include "utils/compute/core/status.h"
#include "utils/compute/graph/gradients.h"
#include "utils/compute/ops/check_numerics/check_numerics.h"
#include "utils/compute/ops/collective/collective.h"
#include "utils/compute/ops/dropout/dropout.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/l2_loss/l2_loss.h"
#include "utils/compute/ops/loss_scale/loss_scale.h"
#include "utils/compute/ops/optimizer/deferred_adam.h"

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

// A float32 scalar that sums `value` over the batches; without examples there is nothing to add. Its name.
std::string Accumulate(BuiltModel& built, absl::string_view name, Value value) {
  const Value sum = LocalSum(*built.graph, name, {DType::kFloat32, {}});
  if (built.has_examples) built.roots.targets.push_back(compute::AssignAdd(sum, value));
  return sum.node()->name();
}

// Zeros in the place of gradients, in the order in which these are computed: the order in which the other replicas sum.
std::vector<Value> Zeros(Graph& graph, const std::vector<Value>& gradients) {
  std::vector<size_t> order(gradients.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return gradients[a].node()->id() < gradients[b].node()->id(); });
  std::vector<Value> zeros(gradients.size());
  for (const size_t i : order) zeros[i] = graph.Constant(Tensor(gradients[i].type()));
  return zeros;
}

// The loss scale as a float32 scalar; nothing if it is always 1.
Value LossScaleValue(Graph& graph, const compute::LossScale& scale) {
  if (scale.dynamic) {
    return graph.Variable({kLossScale, {DType::kFloat32, {}}, compute::Initializer::Constant(scale.value), false});
  }
  return scale.value == 1 ? Value() : graph.Constant(Tensor::Scalar(scale.value));
}

// What is computed in a turn of `values`, which are of the whole batch when multiplied by weights, is summed over the
// turns. The sums; nothing in a turn itself.
std::vector<Value> SumOverTurns(const std::vector<Value>& values, BuiltModel& built) {
  Graph& graph = *built.graph;
  std::vector<compute::RunningSum> sums;
  for (size_t i = 0; i < values.size(); ++i) {
    sums.push_back({LocalSum(graph, absl::StrCat("sum/", i), values[i].type()), values[i]});
  }
  if (built.part == StepPart::kTurn) {
    const Value add = graph.Input("add", {DType::kBool, {}});
    built.roots.feeds.push_back(add);
    built.roots.targets.push_back(compute::Accumulate(add, sums));
    return {};
  }
  std::vector<Value> variables;
  for (const compute::RunningSum& sum : sums) variables.push_back(sum.variable);
  return variables;
}

// `shown`: the loss and the logged values.
void AddTraining(const Model& model, const ModelSpec& spec, const compute::LossScale& scale,
                 const std::vector<Value>& shown, Value weight, BuiltModel& built, int num_replicas) {
  Graph& graph = *built.graph;
  const Value loss = shown[0];
  std::vector<Value> variables;
  for (const auto& node : graph.nodes()) {
    if (node->Is(compute::op::Variable) && graph.variable(*node).trainable) variables.push_back(node->output(0));
  }
  // The gradient of the loss that the backward pass starts with.
  const Value loss_scale = LossScaleValue(graph, scale);
  Value seed = loss_scale;
  if (weight) seed = loss_scale ? compute::Mul(weight, loss_scale) : weight;
  const std::vector<Value> all =
      seed ? compute::Gradients({loss}, {seed}, variables) : compute::Gradients(loss, variables);
  std::vector<compute::VariableGradient> pairs;
  // The gradients, then the values that are averaged.
  std::vector<Value> sums;
  for (size_t i = 0; i < variables.size(); ++i) {
    if (!all[i]) continue;
    pairs.push_back({variables[i], all[i]});
    sums.push_back(all[i]);
  }
  std::vector<compute::MovingAverage> averages = spec.moving_averages;
  for (const compute::MovingAverage& average : averages) {
    sums.push_back(weight ? compute::Mul(average.value, weight) : average.value);
  }
  const size_t num_averaged = sums.size();
  if (built.part != StepPart::kWhole) {
    for (const Value& value : shown) sums.push_back(compute::Mul(value, weight));
  }
  if (!graph.status().ok()) return;
  const bool is_update = built.part == StepPart::kUpdate;
  if (!built.has_examples && !built.stands_in && !is_update) sums = Zeros(graph, sums);
  if (built.part != StepPart::kWhole) sums = SumOverTurns(sums, built);
  if (built.part == StepPart::kTurn || !graph.status().ok()) return;
  if (num_replicas > 1) sums = compute::AllReduce(sums, num_replicas);
  if (!graph.status().ok()) return;
  for (size_t i = 0; i < pairs.size(); ++i) pairs[i].gradient = sums[i];
  for (size_t i = 0; i < averages.size(); ++i) averages[i].value = sums[pairs.size() + i];
  built.roots.fetches.insert(built.roots.fetches.end(), sums.begin() + num_averaged, sums.end());
  const Value learning_rate = graph.Input("learning_rate", {DType::kFloat32, {}});
  built.roots.feeds.push_back(learning_rate);
  if (!model.gradient_norm_tag.empty()) {
    std::vector<Value> gradients;
    for (const compute::VariableGradient& pair : pairs) gradients.push_back(pair.gradient);
    const Value two = graph.Constant(Tensor::Scalar(2.0f));
    const Value norm = compute::Sqrt(compute::Mul(compute::L2Loss(gradients), two));
    built.fetch_names.push_back("gradient_norm");
    built.fetch_tags.push_back(model.gradient_norm_tag);
    built.roots.fetches.push_back(loss_scale ? compute::Div(norm, loss_scale) : norm);
  }
  // Numbers that are not finite end a step before it changes anything; with a dynamic loss scale it is skipped.
  std::vector<Value> checked;
  for (const compute::VariableGradient& pair : pairs) checked.push_back(pair.gradient);
  for (const compute::MovingAverage& average : averages) checked.push_back(average.value);
  const Value finite = compute::AllFinite(checked, scale.dynamic ? loss_scale : Value());
  if (!finite) return;
  built.roots.targets.push_back(finite.node());
  compute::UpdateInputs inputs(learning_rate);
  if (loss_scale) {
    inputs.loss_scale = loss_scale;
    inputs.apply = finite;
  }
  for (Node* node : model.optimizer(inputs, pairs)) built.roots.targets.push_back(node);
  built.settle = compute::SettleRows(graph);
  if (!averages.empty()) {
    built.roots.targets.push_back(compute::UpdateMovingAverages(averages, spec.moving_average_momentum, inputs.apply));
  }
  const TensorType counter{DType::kInt64, {}};
  const Value step = graph.Variable({kGlobalStep, counter, compute::Initializer::Zeros(), /*trainable=*/false});
  const Value one = scale.dynamic ? compute::Cast(finite, DType::kInt64) : graph.Constant(Tensor::Scalar<int64_t>(1));
  built.roots.targets.push_back(compute::AssignAdd(step, one));
  if (!scale.dynamic) return;
  const Value good_steps = graph.Variable({kGoodSteps, counter, compute::Initializer::Zeros(), /*trainable=*/false});
  built.roots.targets.push_back(compute::UpdateLossScale(loss_scale, good_steps, finite));
  built.updated_fetch = static_cast<int>(built.roots.fetches.size());
  built.roots.fetches.push_back(finite);
}

}  // namespace

data::ElementSpec Batched(data::ElementSpec spec, int64_t batch_size) {
  for (auto* leaves : {&spec.features, &spec.labels}) {
    for (data::Leaf& leaf : *leaves) leaf.type = data::BatchedType(leaf.type, batch_size);
  }
  return spec;
}

absl::StatusOr<BuiltModel> BuildModel(const Model& model, Mode mode, DType dtype, const compute::LossScale& loss_scale,
                                      const data::ElementSpec& types, bool has_examples, int num_replicas,
                                      StepPart part, absl::string_view device_kind) {
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
  inputs.device_kind = std::string(device_kind);
  inputs.in_turns = part != StepPart::kWhole;
  if (mode != Mode::kPredict) inputs.labels = AddInputs(graph, "labels", types.labels);
  if (mode == Mode::kTrain) inputs.random_state = compute::RandomState(graph);
  if (mode == Mode::kTrain && num_replicas > 1) {
    inputs.replica_weight = graph.Input("replica_weight", {DType::kFloat32, {}});
  }
  Value turn_weight;
  if (part != StepPart::kWhole) turn_weight = graph.Input("turn_weight", {DType::kFloat32, {}});
  if (built.has_examples || built.stands_in) {
    feeds = inputs.features;
    feeds.insert(feeds.end(), inputs.labels.begin(), inputs.labels.end());
    if (mode == Mode::kTrain) feeds.push_back(inputs.random_state);
    for (const Value& weight : {inputs.replica_weight, turn_weight}) {
      if (weight) feeds.push_back(weight);
    }
  }
  ASSIGN_OR_RETURN(const ModelSpec model_spec, model.model_fn(inputs));
  RETURN_IF_ERROR(graph.status());

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
  if (mode == Mode::kEval && model.host_metrics) {
    for (const NamedValue& p : model_spec.predictions) fetch(p);
  }
  if (mode == Mode::kTrain) {
    for (const NamedValue& v : model_spec.logged) fetch(v);
    Value weight = inputs.replica_weight;
    if (turn_weight) weight = weight ? compute::Mul(weight, turn_weight) : turn_weight;
    AddTraining(model, model_spec, loss_scale, shown, weight, built, num_replicas);
  }
  for (const MeanMetric& metric : model_spec.metrics) {
    built.metrics.push_back({metric.name, metric.summary_tag.empty() ? metric.name : metric.summary_tag,
                             Accumulate(built, absl::StrCat(metric.name, "/total"), metric.total),
                             Accumulate(built, absl::StrCat(metric.name, "/count"), metric.count)});
  }
  RETURN_IF_ERROR(graph.status());
  return built;
}

}  // namespace official::train
