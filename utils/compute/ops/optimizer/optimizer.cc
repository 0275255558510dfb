#include "utils/compute/ops/optimizer/optimizer.h"

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "utils/compute/core/status.h"
#include "utils/compute/graph/op_def.h"
#include "utils/compute/ops/array/array.h"
#include "utils/compute/ops/optimizer/deferred_adam.h"

namespace official::compute {
namespace {

const TensorType kFloatScalar{DType::kFloat32, {}};
const TensorType kBoolScalar{DType::kBool, {}};

// Of an update: `scalars` float32 scalars; if the attribute "guarded" is true the loss scale and whether to apply.
absl::Status CheckScalars(const InferContext& c, int scalars) {
  const bool guarded = c.attrs.GetBool("guarded");
  const int apply = scalars + update_guard::kApply;
  const int floats = guarded ? apply : scalars;
  bool fit = c.num_inputs() > floats;
  for (int i = 0; fit && i < floats; ++i) fit = c.type(i) == kFloatScalar;
  if (fit && (!guarded || c.type(apply) == kBoolScalar)) return absl::OkStatus();
  return c.Error("needs float32 scalars first, and a bool scalar after a loss scale");
}

int NumScalars(const Attrs& attrs, int scalars) {
  return scalars + (attrs.GetBool("guarded") ? update_guard::kNumScalars : 0);
}

// Inputs: `scalars` as above, then groups of `group` tensors of one float32 type, the first of each a variable.
auto UpdateTypes(int scalars, int group) {
  return [=](const InferContext& c) -> absl::StatusOr<std::vector<TensorType>> {
    RETURN_IF_ERROR(CheckScalars(c, scalars));
    const int first = NumScalars(c.attrs, scalars);
    if (c.num_inputs() < first + group || (c.num_inputs() - first) % group != 0) {
      return c.Error(absl::StrCat("needs ", first, " scalars and groups of ", group, " tensors"));
    }
    for (int i = first; i < c.num_inputs(); ++i) {
      const TensorType& variable = c.type(i - (i - first) % group);
      if (variable.dtype != DType::kFloat32 || c.type(i) != variable) {
        return c.Error("needs a float32 variable, its slots and its gradient in one shape");
      }
    }
    return std::vector<TensorType>{};
  };
}

const bool registered[] = {
    RegisterOp({.name = op::ApplyGradientDescent,
                .infer = UpdateTypes(apply_gradient_descent::kNumScalars, apply_gradient_descent::kGroupSize),
                .has_side_effect = true,
                .is_update = true}),
    RegisterOp({.name = op::ApplyMomentum,
                .infer = UpdateTypes(apply_momentum::kNumScalars, apply_momentum::kGroupSize),
                .has_side_effect = true,
                .is_update = true}),
    RegisterOp({.name = op::ApplyAdam,
                .infer = UpdateTypes(apply_adam::kNumScalars, apply_adam::kGroupSize),
                .has_side_effect = true,
                .is_update = true}),
    RegisterOp({.name = op::UpdateMovingAverages,
                .infer = UpdateTypes(update_moving_averages::kNumScalars, update_moving_averages::kGroupSize),
                .has_side_effect = true,
                .is_update = true}),
    RegisterOp({
        .name = op::Accumulate,
        .infer = [](const InferContext& c) -> absl::StatusOr<std::vector<TensorType>> {
          constexpr int kFirst = accumulate::kNumScalars, kGroup = accumulate::kGroupSize;
          bool fits = c.num_inputs() >= kFirst + kGroup && (c.num_inputs() - kFirst) % kGroup == 0 &&
                      c.type(accumulate::kAdd) == kBoolScalar;
          for (int i = kFirst; fits && i < c.num_inputs(); i += kGroup) {
            const TensorType& variable = c.type(i + accumulate::kVariable);
            fits = variable.dtype == DType::kFloat32 && c.type(i + accumulate::kValue) == variable;
          }
          if (!fits) return c.Error("needs a bool scalar, then pairs of a float32 variable and a value of its shape");
          return std::vector<TensorType>{};
        },
        .has_side_effect = true,
    }),
    RegisterOp({
        .name = op::AssignAdd,
        .infer = [](const InferContext& c) -> absl::StatusOr<std::vector<TensorType>> {
          bool fits = c.num_inputs() > 0 && c.num_inputs() % assign_add::kGroupSize == 0;
          for (int i = 0; fits && i < c.num_inputs(); i += assign_add::kGroupSize) {
            const TensorType& variable = c.type(i + assign_add::kVariable);
            fits = variable == c.type(i + assign_add::kDelta) && variable.shape.rank() == 0 &&
                   (variable.dtype == DType::kInt64 || variable.dtype == DType::kFloat32);
          }
          if (!fits) return c.Error("needs pairs of an int64 or float32 scalar variable and a scalar of its type");
          return std::vector<TensorType>{};
        },
        .has_side_effect = true,
    }),
    RegisterOp({
        .name = op::AssignScale,
        .infer = [](const InferContext& c) -> absl::StatusOr<std::vector<TensorType>> {
          const int variables = static_cast<int>(c.attrs.Get<Tensor>("factors").num_elements());
          bool fits =
              c.num_inputs() == variables || (c.num_inputs() == variables + 1 && c.type(variables) == kBoolScalar);
          for (int i = 0; fits && i < variables; ++i) fits = c.type(i) == kFloatScalar;
          if (!fits) return c.Error("needs float32 scalars, and a bool scalar where they are not always scaled");
          return std::vector<TensorType>{};
        },
        .has_side_effect = true,
    }),
};

Value Slot(const Value& variable, absl::string_view suffix, absl::string_view scope = "") {
  return variable.graph()->Variable({absl::StrCat(scope, variable.node()->name(), "/", suffix), variable.type(),
                                     Initializer::Zeros(), /*trainable=*/false});
}

Value PowerOf(Graph& graph, absl::string_view name, double beta) {
  return graph.Variable({std::string(name), {DType::kFloat32, {}}, Initializer::Constant(beta), /*trainable=*/false});
}

// False if an input is invalid; the graph's status then says why.
bool Check(const UpdateInputs& inputs, absl::Span<const VariableGradient> variables) {
  if (!inputs.learning_rate) return false;
  Graph& graph = *inputs.learning_rate.graph();
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

bool IsGuarded(const UpdateInputs& inputs) { return static_cast<bool>(inputs.loss_scale); }

// Adds the attributes that all updates have.
Attrs WithGuard(Attrs attrs, const UpdateInputs& inputs) {
  attrs.Set("guarded", IsGuarded(inputs));
  if (inputs.clip_value) attrs.Set("clip_value", *inputs.clip_value);
  return attrs;
}

// The scalars of an update: the learning rate, `more`, and what guards it.
std::vector<Value> Scalars(const UpdateInputs& inputs, absl::Span<const Value> more = {}) {
  std::vector<Value> scalars = {inputs.learning_rate};
  scalars.insert(scalars.end(), more.begin(), more.end());
  if (IsGuarded(inputs)) scalars.insert(scalars.end(), {inputs.loss_scale, inputs.apply});
  return scalars;
}

// Multiplies the powers of Adam's betas by these.
Node* ScalePowers(Value beta1_power, Value beta2_power, const AdamParams& params, const UpdateInputs& inputs) {
  std::vector<Value> operands = {beta1_power, beta2_power};
  if (IsGuarded(inputs)) operands.push_back(inputs.apply);
  const Tensor factors = Tensor::Of<float>({2}, {static_cast<float>(params.beta1), static_cast<float>(params.beta2)});
  return ApplyNode(op::AssignScale, operands, Attrs{{"factors", factors}});
}

}  // namespace

absl::Status NoGradientsError(absl::Span<const Value> variables) {
  const auto quoted = [](std::string* text, const Value& v) { absl::StrAppend(text, "'", v.node()->name(), "'"); };
  return absl::InvalidArgumentError(
      absl::StrCat("No gradients provided for any variable: [", absl::StrJoin(variables, ", ", quoted), "]."));
}

std::vector<Node*> GradientDescent(const UpdateInputs& inputs, absl::Span<const VariableGradient> variables) {
  if (!Check(inputs, variables)) return {};
  std::vector<Value> operands = Scalars(inputs);
  for (const auto& [variable, gradient] : variables) operands.insert(operands.end(), {variable, gradient});
  return {ApplyNode(op::ApplyGradientDescent, operands, WithGuard({}, inputs))};
}

std::vector<Node*> Momentum(const UpdateInputs& inputs, absl::Span<const VariableGradient> variables,
                            const MomentumParams& params) {
  if (!Check(inputs, variables)) return {};
  std::vector<Value> operands = Scalars(inputs);
  for (const auto& [variable, gradient] : variables) {
    operands.insert(operands.end(), {variable, Slot(variable, "Momentum"), gradient});
  }
  return {ApplyNode(op::ApplyMomentum, operands,
                    WithGuard({{"momentum", params.momentum}, {"nesterov", params.nesterov}}, inputs))};
}

std::vector<Node*> Adam(const UpdateInputs& inputs, absl::Span<const VariableGradient> variables,
                        const AdamParams& params) {
  if (!Check(inputs, variables)) return {};
  Graph& graph = *inputs.learning_rate.graph();
  const Value beta1_power = PowerOf(graph, params.scope + "beta1_power", params.beta1);
  const Value beta2_power = PowerOf(graph, params.scope + "beta2_power", params.beta2);
  const Attrs attrs =
      WithGuard({{"beta1", params.beta1}, {"beta2", params.beta2}, {"epsilon", params.epsilon}}, inputs);
  const absl::flat_hash_set<Value> caught_up = CaughtUpTables(graph);
  std::vector<Value> dense = Scalars(inputs, {beta1_power, beta2_power});
  const size_t num_scalars = dense.size();
  std::vector<VariableGradient> deferred;
  std::vector<Node*> updates;
  for (const auto& [variable, gradient] : variables) {
    const bool is_sparse = gradient.node()->Is(op::IndexedSlices);
    if (is_sparse && (inputs.defers_rows || AreCaughtUp(gradient.node()->input(indexed_slices::kIndices)))) {
      deferred.push_back({variable, gradient});
      continue;
    }
    if (caught_up.contains(variable)) {
      graph.Fail(absl::InvalidArgumentError(
          absl::StrCat("variable ", variable.node()->name(),
                       " was given to CatchUpRows, but its gradient is not of those rows "
                       "alone; gather all rows that the step reads at once, by the ids that CatchUpRows returns")));
      return {};
    }
    const Value m = Slot(variable, "Adam", params.scope), v = Slot(variable, "Adam_1", params.scope);
    dense.insert(dense.end(), {variable, m, v, gradient});
  }
  if (!deferred.empty() && inputs.defers_rows) deferred = CaughtUp(deferred, params);
  if (!deferred.empty()) updates.push_back(DeferredAdam(inputs, {beta1_power, beta2_power}, deferred, params));
  if (dense.size() > num_scalars) updates.push_back(ApplyNode(op::ApplyAdam, dense, attrs));
  updates.push_back(ScalePowers(beta1_power, beta2_power, params, inputs));
  return updates;
}

Node* UpdateMovingAverages(absl::Span<const MovingAverage> averages, double momentum, Value apply) {
  std::vector<Value> inputs;
  // Guarded as the other updates are: with a loss scale of 1.
  if (apply) inputs = {apply.graph()->Constant(Tensor::Scalar(1.0f)), apply};
  for (const auto& [variable, value] : averages) inputs.insert(inputs.end(), {variable, value});
  return ApplyNode(op::UpdateMovingAverages, inputs,
                   Attrs{{"momentum", momentum}, {"guarded", static_cast<bool>(apply)}});
}

Node* Accumulate(Value add, absl::Span<const RunningSum> sums) {
  std::vector<Value> inputs = {add};
  for (const auto& [variable, value] : sums) inputs.insert(inputs.end(), {variable, value});
  return ApplyNode(op::Accumulate, inputs);
}

Node* AssignAdd(absl::Span<const Count> counts) {
  std::vector<Value> inputs;
  for (const auto& [variable, delta] : counts) inputs.insert(inputs.end(), {variable, delta});
  return ApplyNode(op::AssignAdd, inputs);
}

}  // namespace official::compute
