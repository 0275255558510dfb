#include "utils/compute/ops/optimizer/optimizer.h"

#include "absl/strings/str_cat.h"
#include "utils/compute/graph/op_def.h"

namespace official::compute {
namespace {

// Inputs: `scalars` float32 scalars, then groups of `group` tensors of one float32 type, the first of each a variable.
auto UpdateTypes(int scalars, int group) {
  return [=](const InferContext& c) -> absl::StatusOr<std::vector<TensorType>> {
    if (c.num_inputs() < scalars + group || (c.num_inputs() - scalars) % group != 0) {
      return c.Error(absl::StrCat("needs ", scalars, " scalars and groups of ", group, " tensors"));
    }
    for (int i = 0; i < scalars; ++i) {
      if (c.type(i) != TensorType{DType::kFloat32, {}}) return c.Error("needs float32 scalars first");
    }
    for (int i = scalars; i < c.num_inputs(); ++i) {
      const TensorType& variable = c.type(i - (i - scalars) % group);
      if (variable.dtype != DType::kFloat32 || c.type(i) != variable) {
        return c.Error("needs a float32 variable, its slots and its gradient in one shape");
      }
    }
    return std::vector<TensorType>{};
  };
}

const bool gradient_descent =
    RegisterOp({.name = "ApplyGradientDescent", .infer = UpdateTypes(1, 2), .has_side_effect = true});
const bool momentum = RegisterOp({.name = "ApplyMomentum", .infer = UpdateTypes(1, 3), .has_side_effect = true});
const bool adam = RegisterOp({.name = "ApplyAdam", .infer = UpdateTypes(3, 4), .has_side_effect = true});
const bool lazy_adam = RegisterOp({
    .name = "ApplyLazyAdam",
    .infer = [](const InferContext& c) -> absl::StatusOr<std::vector<TensorType>> {
      // lr, beta1_power, beta2_power, variable, m, v, indices, rows
      if (c.num_inputs() != 8) return c.Error("needs 8 inputs");
      if (c.type(4) != c.type(3) || c.type(5) != c.type(3) || c.dtype(3) != DType::kFloat32 ||
          c.dtype(6) != DType::kInt32 || c.dtype(7) != DType::kFloat32 || c.shape(6).rank() != 1 ||
          c.shape(7).rank() != c.shape(3).rank() || c.shape(7).dim(0) != c.shape(6).dim(0)) {
        return c.Error("needs a float32 variable, two slots, int32 indices and as many rows");
      }
      return std::vector<TensorType>{};
    },
    .has_side_effect = true,
});
const bool moving_average =
    RegisterOp({.name = "UpdateMovingAverages", .infer = UpdateTypes(0, 2), .has_side_effect = true});
const bool assign_add = RegisterOp({
    .name = "AssignAdd",
    .infer = [](const InferContext& c) -> absl::StatusOr<std::vector<TensorType>> {
      if (c.num_inputs() != 2 || c.type(0) != c.type(1) || c.shape(0).rank() != 0) {
        return c.Error("needs a scalar variable and a scalar of its type");
      }
      return std::vector<TensorType>{};
    },
    .has_side_effect = true,
});
const bool assign_scale = RegisterOp({
    .name = "AssignScale",
    .infer = [](const InferContext& c) -> absl::StatusOr<std::vector<TensorType>> {
      if (c.num_inputs() != 1 || c.type(0) != TensorType{DType::kFloat32, {}}) return c.Error("needs a float32 scalar");
      return std::vector<TensorType>{};
    },
    .has_side_effect = true,
});

Value Slot(const Value& variable, absl::string_view suffix) {
  return variable.graph()->Variable(
      {absl::StrCat(variable.node()->name(), "/", suffix), variable.type(), Initializer::Zeros(), /*trainable=*/false});
}

Value PowerOf(Graph& graph, absl::string_view name, double beta) {
  return graph.Variable({std::string(name), {DType::kFloat32, {}}, Initializer::Constant(beta), /*trainable=*/false});
}

// False if an input is invalid; the graph's status then says why.
bool Check(Value learning_rate, absl::Span<const VariableGradient> variables) {
  if (!learning_rate) return false;
  Graph& graph = *learning_rate.graph();
  if (variables.empty()) graph.Fail(absl::InvalidArgumentError("the optimizer got no variables"));
  for (const auto& [variable, gradient] : variables) {
    if (!variable) return false;
    if (!gradient) {
      graph.Fail(absl::InvalidArgumentError(
          absl::StrCat("variable ", variable.node()->name(), " has no gradient: the loss does not depend on it")));
    }
  }
  return graph.status().ok();
}

}  // namespace

std::vector<Node*> GradientDescent(Value learning_rate, absl::Span<const VariableGradient> variables) {
  if (!Check(learning_rate, variables)) return {};
  std::vector<Value> inputs = {learning_rate};
  for (const auto& [variable, gradient] : variables) inputs.insert(inputs.end(), {variable, gradient});
  return {ApplyNode("ApplyGradientDescent", inputs)};
}

std::vector<Node*> Momentum(Value learning_rate, absl::Span<const VariableGradient> variables,
                            const MomentumParams& params) {
  if (!Check(learning_rate, variables)) return {};
  std::vector<Value> inputs = {learning_rate};
  for (const auto& [variable, gradient] : variables) {
    inputs.insert(inputs.end(), {variable, Slot(variable, "Momentum"), gradient});
  }
  return {ApplyNode("ApplyMomentum", inputs, Attrs{{"momentum", params.momentum}, {"nesterov", params.nesterov}})};
}

std::vector<Node*> Adam(Value learning_rate, absl::Span<const VariableGradient> variables, const AdamParams& params) {
  if (!Check(learning_rate, variables)) return {};
  Graph& graph = *learning_rate.graph();
  const Value beta1_power = PowerOf(graph, "beta1_power", params.beta1);
  const Value beta2_power = PowerOf(graph, "beta2_power", params.beta2);
  const Attrs attrs{{"beta1", params.beta1}, {"beta2", params.beta2}, {"epsilon", params.epsilon}};
  const std::vector<Value> scalars = {learning_rate, beta1_power, beta2_power};
  std::vector<Value> dense = scalars;
  std::vector<Node*> updates;
  for (const auto& [variable, gradient] : variables) {
    const Value m = Slot(variable, "Adam"), v = Slot(variable, "Adam_1");
    if (params.lazy && gradient.node()->Is("IndexedSlices")) {
      std::vector<Value> inputs = scalars;
      inputs.insert(inputs.end(), {variable, m, v, gradient.node()->input(0), gradient.node()->input(1)});
      updates.push_back(ApplyNode("ApplyLazyAdam", inputs, attrs));
    } else {
      dense.insert(dense.end(), {variable, m, v, gradient});
    }
  }
  if (dense.size() > scalars.size()) updates.push_back(ApplyNode("ApplyAdam", dense, attrs));
  updates.push_back(ApplyNode("AssignScale", {beta1_power}, Attrs{{"factor", params.beta1}}));
  updates.push_back(ApplyNode("AssignScale", {beta2_power}, Attrs{{"factor", params.beta2}}));
  return updates;
}

Node* UpdateMovingAverages(absl::Span<const MovingAverage> averages, double momentum) {
  std::vector<Value> inputs;
  for (const auto& [variable, value] : averages) inputs.insert(inputs.end(), {variable, value});
  return ApplyNode("UpdateMovingAverages", inputs, Attrs{{"momentum", momentum}});
}

Node* AssignAdd(Value variable, Value delta) { return ApplyNode("AssignAdd", {variable, delta}); }

}  // namespace official::compute
