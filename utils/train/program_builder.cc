#include "utils/train/program_builder.h"

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/compute/graph/gradients.h"
#include "utils/compute/ops/dropout/dropout.h"

namespace official::train {
namespace {

using compute::DType;
using compute::Graph;
using compute::Node;
using compute::Shape;
using compute::TensorType;
using compute::Value;

TensorType Batched(const TensorType& type, int64_t batch_size) {
  std::vector<int64_t> dims = {batch_size};
  dims.insert(dims.end(), type.shape.dims().begin(), type.shape.dims().end());
  return {type.dtype, Shape(dims)};
}

std::vector<Value> AddInputs(Graph& graph, absl::string_view prefix, const std::vector<data::Leaf>& leaves,
                             int64_t batch_size) {
  std::vector<Value> inputs;
  for (const data::Leaf& leaf : leaves) {
    inputs.push_back(graph.Input(leaf.name.empty() ? std::string(prefix) : absl::StrCat(prefix, "/", leaf.name),
                                 Batched(leaf.type, batch_size)));
  }
  return inputs;
}

// A float32 scalar that sums `value` over the batches; the fetch gives the sum so far.
Value Accumulate(Graph& graph, absl::string_view name, Value value, std::vector<Node*>& targets) {
  const Value sum = graph.Variable({absl::StrCat(kLocalPrefix, name),
                                    {DType::kFloat32, {}},
                                    compute::Initializer::Zeros(),
                                    /*trainable=*/false});
  targets.push_back(compute::AssignAdd(sum, value));
  return sum;
}

void AddTraining(const Model& model, const ModelSpec& spec, BuiltModel& built) {
  Graph& graph = *built.graph;
  const Value learning_rate = graph.Input("learning_rate", {DType::kFloat32, {}});
  built.roots.feeds.push_back(learning_rate);
  std::vector<Value> variables;
  for (const auto& node : graph.nodes()) {
    if (node->Is("Variable") && graph.variable(*node).trainable) variables.push_back(node->output(0));
  }
  const std::vector<Value> gradients = compute::Gradients(spec.loss, variables);
  std::vector<compute::VariableGradient> pairs;
  for (size_t i = 0; i < variables.size(); ++i) {
    if (gradients[i]) pairs.push_back({variables[i], gradients[i]});
  }
  for (Node* node : model.optimizer(learning_rate, pairs)) built.roots.targets.push_back(node);
  const Value step =
      graph.Variable({kGlobalStep, {DType::kInt64, {}}, compute::Initializer::Zeros(), /*trainable=*/false});
  built.roots.targets.push_back(compute::AssignAdd(step, graph.Constant(compute::Tensor::Scalar<int64_t>(1))));
}

}  // namespace

absl::StatusOr<double> MetricValue(const compute::Program& program, const BuiltModel::MetricFetch& metric) {
  ASSIGN_OR_RETURN(const compute::Tensor total, program.Fetch(metric.total));
  ASSIGN_OR_RETURN(const compute::Tensor count, program.Fetch(metric.count));
  return static_cast<double>(total.scalar<float>()) / static_cast<double>(count.scalar<float>());
}

absl::StatusOr<BuiltModel> BuildModel(const Model& model, Mode mode, DType dtype, const data::ElementSpec& spec,
                                      int64_t batch_size) {
  BuiltModel built;
  built.graph = std::make_unique<Graph>();
  Graph& graph = *built.graph;
  ModelInputs inputs{graph, mode, dtype, AddInputs(graph, "features", spec.features, batch_size), {}, Value()};
  built.roots.feeds = inputs.features;
  if (mode != Mode::kPredict) {
    inputs.labels = AddInputs(graph, "labels", spec.labels, batch_size);
    built.roots.feeds.insert(built.roots.feeds.end(), inputs.labels.begin(), inputs.labels.end());
  }
  if (mode == Mode::kTrain) {
    inputs.random_state = compute::RandomState(graph);
    built.roots.feeds.push_back(inputs.random_state);
  }
  ASSIGN_OR_RETURN(const ModelSpec model_spec, model.model_fn(inputs));
  RETURN_IF_ERROR(graph.status());

  const auto fetch = [&](absl::string_view name, Value value) {
    built.fetch_names.emplace_back(name);
    built.roots.fetches.push_back(value);
    return static_cast<int>(built.roots.fetches.size()) - 1;
  };
  if (mode == Mode::kPredict) {
    for (const NamedValue& p : model_spec.predictions) fetch(p.name, p.value);
    return built;
  }
  fetch("loss", model_spec.loss);
  if (mode == Mode::kTrain) {
    for (const NamedValue& v : model_spec.logged) fetch(v.name, v.value);
    built.num_logged = static_cast<int>(model_spec.logged.size());
    AddTraining(model, model_spec, built);
  }
  for (const MeanMetric& metric : model_spec.metrics) {
    const Value total = Accumulate(graph, absl::StrCat(metric.name, "/total"), metric.total, built.roots.targets);
    const Value count = Accumulate(graph, absl::StrCat(metric.name, "/count"), metric.count, built.roots.targets);
    built.metrics.push_back({metric.name, metric.summary_tag.empty() ? metric.name : metric.summary_tag,
                             fetch(absl::StrCat(metric.name, "/total"), total),
                             fetch(absl::StrCat(metric.name, "/count"), count)});
  }
  RETURN_IF_ERROR(graph.status());
  return built;
}

}  // namespace official::train
