#include "utils/compute/ops/optimizer/deferred_adam.h"

#include <string>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/compute/graph/op_def.h"
#include "utils/compute/ops/array/array.h"

namespace official::compute {
namespace {

// Steps after which all rows are brought up to date.
constexpr int64_t kMaxDeferred = 1024;

Value Slot(const Value& variable, absl::string_view suffix, const AdamParams& params) {
  return variable.graph()->Variable({absl::StrCat(params.scope, variable.node()->name(), "/", suffix), variable.type(),
                                     Initializer::Zeros(), /*trainable=*/false});
}

// Of all tables: alpha of each step since all rows were up to date, and the number of these steps.
std::vector<Value> DeferredSteps(Graph& graph) {
  return {
      graph.Variable({absl::StrCat(kDeferredPrefix, "alphas"),
                      {DType::kFloat32, {kMaxDeferred}},
                      Initializer::Zeros(),
                      /*trainable=*/false}),
      graph.Variable(
          {absl::StrCat(kDeferredPrefix, "steps"), {DType::kInt32, {}}, Initializer::Zeros(), /*trainable=*/false})};
}

// The table, its moments, and for each row how many of the deferred steps it has made.
std::vector<Value> State(const Value& table, const AdamParams& params) {
  return {table, Slot(table, "Adam", params), Slot(table, "Adam_1", params),
          table.graph()->Variable({absl::StrCat(kDeferredPrefix, table.node()->name()),
                                   {DType::kInt32, {table.shape().dim(0)}},
                                   Initializer::Zeros(),
                                   /*trainable=*/false})};
}

// Where the deferred steps of an ApplyDeferredAdam with these attributes begin.
int BeginOfSteps(const Attrs& attrs) {
  return apply_adam::kNumScalars + (attrs.GetBool("guarded") ? update_guard::kNumScalars : 0);
}

// The deferred steps begin at input `first`.
absl::Status CheckSteps(const InferContext& c, int first) {
  const int alphas = first + deferred_adam::kAlphas, number = first + deferred_adam::kNumber;
  if (c.num_inputs() >= first + deferred_adam::kNumSteps && c.dtype(alphas) == DType::kFloat32 &&
      c.shape(alphas).rank() == 1 && c.type(number) == TensorType{DType::kInt32, {}}) {
    return absl::OkStatus();
  }
  return c.Error("needs the deferred steps' float32 alphas and int32 number");
}

// Groups of `group` tensors of a table, from input `first` on.
absl::Status CheckTables(const InferContext& c, int first, int group) {
  if (c.num_inputs() < first + group || (c.num_inputs() - first) % group != 0) {
    return c.Error(absl::StrCat("needs groups of ", group, " tensors"));
  }
  for (int i = first; i < c.num_inputs(); i += group) {
    const auto type = [&](deferred_adam::Group place) -> const TensorType& { return c.type(i + place); };
    const TensorType& table = type(deferred_adam::kTable);
    if (table.dtype != DType::kFloat32 || table.shape.rank() < 1 || type(deferred_adam::kM) != table ||
        type(deferred_adam::kV) != table ||
        type(deferred_adam::kMade) != TensorType{DType::kInt32, {table.shape.dim(0)}}) {
      return c.Error("needs float32 tables, two moments of each and an int32 for each row");
    }
    if (group <= deferred_adam::kIds) continue;
    const TensorType& ids = type(deferred_adam::kIds);
    if (ids.dtype != DType::kInt32 || ids.shape.rank() != 1) return c.Error("needs int32 ids [n]");
    if (group <= deferred_adam::kRows) continue;
    Shape rows = table.shape;
    rows.set_dim(0, ids.shape.dim(0));
    if (type(deferred_adam::kRows) != TensorType{DType::kFloat32, rows}) {
      return c.Error("needs a float32 row for each id");
    }
  }
  return absl::OkStatus();
}

const bool registered[] = {
    RegisterOp({
        .name = op::CatchUpRows,
        .infer = [](const InferContext& c) -> absl::StatusOr<std::vector<TensorType>> {
          RETURN_IF_ERROR(CheckSteps(c, 0));
          RETURN_IF_ERROR(CheckTables(c, deferred_adam::kNumSteps, deferred_adam::kCatchUpGroupSize));
          std::vector<TensorType> types;
          for (int i = deferred_adam::kNumSteps; i < c.num_inputs(); i += deferred_adam::kCatchUpGroupSize) {
            types.push_back(c.type(i + deferred_adam::kIds));
          }
          return types;
        },
        .has_side_effect = true,
    }),
    RegisterOp({
        .name = op::ApplyDeferredAdam,
        .infer = [](const InferContext& c) -> absl::StatusOr<std::vector<TensorType>> {
          const int first = BeginOfSteps(c.attrs);
          RETURN_IF_ERROR(CheckSteps(c, first));
          RETURN_IF_ERROR(CheckTables(c, first + deferred_adam::kNumSteps, deferred_adam::kApplyGroupSize));
          return std::vector<TensorType>{};
        },
        .has_side_effect = true,
        .is_update = true,
    }),
    RegisterOp({
        .name = op::SettleRows,
        .infer = [](const InferContext& c) -> absl::StatusOr<std::vector<TensorType>> {
          RETURN_IF_ERROR(CheckSteps(c, 0));
          RETURN_IF_ERROR(CheckTables(c, deferred_adam::kNumSteps, deferred_adam::kSettleGroupSize));
          return std::vector<TensorType>{};
        },
        .has_side_effect = true,
    }),
};

void Append(std::vector<Value>& to, const std::vector<Value>& values) {
  to.insert(to.end(), values.begin(), values.end());
}

Attrs AttrsOf(const AdamParams& params) {
  return {{"beta1", params.beta1}, {"beta2", params.beta2}, {"epsilon", params.epsilon}};
}

std::vector<Value> CatchUp(Graph& graph, absl::Span<const TableRows> tables, const AdamParams& params) {
  std::vector<Value> ids(tables.size());
  std::vector<Value> inputs = DeferredSteps(graph);
  for (const TableRows& rows : tables) {
    if (!rows.table) return ids;
    Append(inputs, State(rows.table, params));
    inputs.push_back(rows.ids);
  }
  Node* const node = ApplyNode(op::CatchUpRows, inputs, AttrsOf(params));
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = OutputOf(node, static_cast<int>(i));
  return ids;
}

}  // namespace

std::vector<Value> CatchUpRows(absl::Span<const TableRows> tables, const AdamParams& params) {
  std::vector<Value> ids(tables.size());
  if (tables.empty() || !tables[0].table) return ids;
  Graph& graph = *tables[0].table.graph();
  if (graph.step_context().num_replicas > 1 || graph.step_context().needs_whole_updates) {
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = tables[i].ids;
    return ids;
  }
  return CatchUp(graph, tables, params);
}

std::vector<VariableGradient> CaughtUp(absl::Span<const VariableGradient> variables, const AdamParams& params) {
  std::vector<TableRows> tables;
  for (const auto& [variable, gradient] : variables) {
    tables.push_back({variable, gradient.node()->input(indexed_slices::kIndices)});
  }
  const std::vector<Value> ids = CatchUp(*variables[0].variable.graph(), tables, params);
  std::vector<VariableGradient> result;
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto& [variable, gradient] = variables[i];
    result.push_back(
        {variable, IndexedSlices(ids[i], gradient.node()->input(indexed_slices::kRows), variable.shape())});
  }
  return result;
}

absl::flat_hash_set<Value> CaughtUpTables(const Graph& graph) {
  absl::flat_hash_set<Value> tables;
  for (const auto& node : graph.nodes()) {
    if (!node->Is(op::CatchUpRows)) continue;
    for (int i = deferred_adam::kNumSteps; i < node->num_inputs(); i += deferred_adam::kCatchUpGroupSize) {
      tables.insert(node->input(i + deferred_adam::kTable));
    }
  }
  return tables;
}

bool AreCaughtUp(Value ids) { return ids && ids.node()->Is(op::CatchUpRows); }

Node* DeferredAdam(const UpdateInputs& inputs, absl::Span<const Value> powers,
                   absl::Span<const VariableGradient> variables, const AdamParams& params) {
  std::vector<Value> operands = {inputs.learning_rate, powers[0], powers[1]};
  const bool guarded = static_cast<bool>(inputs.loss_scale);
  if (guarded) Append(operands, {inputs.loss_scale, inputs.apply});
  Append(operands, DeferredSteps(*inputs.learning_rate.graph()));
  for (const auto& [variable, gradient] : variables) {
    Append(operands, State(variable, params));
    Append(operands, {gradient.node()->input(0), gradient.node()->input(1)});
  }
  Attrs attrs = AttrsOf(params);
  attrs.Set("guarded", guarded);
  if (inputs.clip_value) attrs.Set("clip_value", *inputs.clip_value);
  return ApplyNode(op::ApplyDeferredAdam, operands, attrs);
}

Node* SettleRows(Graph& graph) {
  for (const auto& node : graph.nodes()) {
    if (!node->Is(op::ApplyDeferredAdam)) continue;
    const int first = BeginOfSteps(node->attrs());
    std::vector<Value> inputs = {node->input(first + deferred_adam::kAlphas),
                                 node->input(first + deferred_adam::kNumber)};
    for (int i = first + deferred_adam::kNumSteps; i < node->num_inputs(); i += deferred_adam::kApplyGroupSize) {
      for (int k = 0; k < deferred_adam::kSettleGroupSize; ++k) inputs.push_back(node->input(i + k));
    }
    return ApplyNode(op::SettleRows, inputs,
                     Attrs{{"beta1", node->attrs().GetFloat("beta1")},
                           {"beta2", node->attrs().GetFloat("beta2")},
                           {"epsilon", node->attrs().GetFloat("epsilon")}});
  }
  return nullptr;
}

}  // namespace official::compute
