#include "utils/distribute/custom_loop/replica_context.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "utils/compute/core/batch_parts.h"
#include "utils/compute/core/status.h"
#include "utils/compute/graph/views.h"
#include "utils/compute/ops/array/array.h"
#include "utils/compute/ops/collective/collective.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/logs/log.h"

namespace official::distribute {

using compute::DType;
using compute::Tensor;
using compute::TensorType;
using compute::Value;

namespace {

const TensorType kInt64Scalar{DType::kInt64, {}};

}  // namespace

Value ReplicaContext::Scalar(float value) { return graph_.Constant(Tensor::Scalar(value)); }

bool ReplicaContext::IsInReplica() {
  if (!in_merge_call_) return true;
  graph_.Fail(absl::FailedPreconditionError(
      "Need to be inside `call_for_each_replica()`: the context of a replica is used within a merge_call"));
  return false;
}

Value ReplicaContext::AllReduce(ReduceOp op, Value value) { return IsInReplica() ? Sum(op, value) : Value(); }

Value ReplicaContext::AllGather(Value value, int axis) { return IsInReplica() ? Joined(value, axis) : Value(); }

std::vector<Value> ReplicaContext::MergeCall(const MergeFn& fn, absl::Span<const Value> values) {
  if (!IsInReplica()) return {};
  ++num_merge_calls_;
  std::vector<PerReplicaValue> of_replicas;
  for (const Value& value : values) of_replicas.push_back({value});
  CrossReplicaContext context(*this);
  in_merge_call_ = true;
  std::vector<Value> results = fn(context, of_replicas);
  in_merge_call_ = false;
  return results;
}

Value ReplicaContext::Sum(ReduceOp op, Value value) {
  if (!value || !sums() || value.shape().num_elements() == 0) return value;
  if (op == ReduceOp::kSum && value.type() == kInt64Scalar) {
    const std::vector<Value> of_each = ScalarOfEach(value);
    Value sum = of_each[0];
    for (int r = 1; r < num_replicas_; ++r) sum = compute::Add(sum, of_each[r]);
    return sum;
  }
  const Value sum = compute::AllReduce({Copied(value)}, 1)[0];
  return op == ReduceOp::kSum ? sum : compute::Div(sum, Scalar(static_cast<float>(num_replicas_)));
}

Value ReplicaContext::Joined(Value value, int axis) {
  if (!value) return value;
  const int rank = value.shape().rank();
  if (axis < -rank || axis >= rank) {
    graph_.Fail(absl::InvalidArgumentError(
        absl::StrCat("all_gather: axis ", axis, " is not one of a value of shape ", value.shape().ToString())));
    return Value();
  }
  if (num_replicas_ == 1) return value;
  if (axis < 0) axis += rank;
  // Zeros in the places of the others, which the sum fills.
  const int64_t size = value.shape().dim(axis);
  std::vector<int64_t> paddings(2 * rank, 0);
  paddings[2 * axis] = size * replica_id_;
  paddings[2 * axis + 1] = size * (num_replicas_ - 1 - replica_id_);
  return Sum(ReduceOp::kSum, compute::Pad(value, paddings));
}

void ReplicaContext::SynchronizeBatchNormalization(int64_t num_examples) {
  if (!IsInReplica()) return;
  const Value own = Scalar(static_cast<float>(num_examples));
  compute::StepContext context = graph_.step_context();
  // At least one, so that no share is NaN.
  context.weight = compute::Div(own, compute::Maximum(Sum(ReduceOp::kSum, own), Scalar(1)));
  graph_.set_step_context(context);
}

std::vector<Value> ReplicaContext::OfEach(Value value) {
  if (!value) return std::vector<Value>(num_replicas_);
  if (num_replicas_ == 1) return {value};
  if (value.type() == kInt64Scalar) return ScalarOfEach(value);
  const compute::Shape shape = value.shape();
  const std::vector<int64_t> dims(shape.dims().begin(), shape.dims().end());
  std::vector<int64_t> row = dims;
  row.insert(row.begin(), 1);
  const Value all = Joined(compute::Reshape(value, row), 0);
  std::vector<Value> of_each(num_replicas_);
  if (!all) return of_each;
  std::vector<int64_t> begin(row.size(), 0);
  for (int r = 0; r < num_replicas_; ++r) {
    begin[0] = r;
    of_each[r] = compute::Reshape(compute::Slice(all, begin, row), dims);
  }
  return of_each;
}

std::vector<Value> ReplicaContext::ScalarOfEach(Value value) {
  // Three floats hold all bits of an integer: its rounded value, what that leaves rounded, and the rest.
  std::vector<Value> parts;
  for (Value rest = value; parts.size() < 3;) {
    parts.push_back(compute::Cast(rest, DType::kFloat32));
    rest = compute::Sub(rest, compute::Cast(parts.back(), DType::kInt64));
  }
  const Value all = Joined(compute::Reshape(compute::Stack(parts, 0), {1, 3}), 0);
  std::vector<Value> of_each(num_replicas_);
  if (!all) return of_each;
  for (int r = 0; r < num_replicas_; ++r) {
    for (int i = 0; i < 3; ++i) {
      const Value part = compute::Cast(compute::Reshape(compute::Slice(all, {r, i}, {1, 1}), {}), DType::kInt64);
      of_each[r] = i == 0 ? part : compute::Add(of_each[r], part);
    }
  }
  return of_each;
}

Value ReplicaContext::Aggregate(const DistributedVariable& variable, Value value) {
  if (variable.is_on_read() || num_replicas_ == 1 || !value) return value;
  switch (variable.aggregation()) {
    case VariableAggregation::kSum:
      return Sum(ReduceOp::kSum, value);
    case VariableAggregation::kMean:
      return Sum(ReduceOp::kMean, value);
    case VariableAggregation::kOnlyFirstReplica:
      if (value.type() == kInt64Scalar) return ScalarOfEach(value)[0];
      return Sum(ReduceOp::kSum, replica_id_ == 0 ? value : graph_.Constant(Tensor(value.type())));
    case VariableAggregation::kNone:
      break;
  }
  if (split_ != nullptr) {
    graph_.Fail(absl::InvalidArgumentError(absl::StrCat(
        "You must specify an aggregation method to update a AggregatingVariable in Replica Context: variable ",
        variable.name(), " has none, and the replicas share one copy of it; give VariableOptions::aggregation")));
  }
  return value;
}

Value ReplicaContext::Read(const DistributedVariable& variable) { return Read(variable.spec()); }

Value ReplicaContext::Read(const compute::VariableSpec& variable) {
  const auto assigned = assigned_.find(variable.name);
  return assigned == assigned_.end() ? graph_.Variable(variable) : assigned->second.value;
}

void ReplicaContext::Assign(const DistributedVariable& variable, Value value) {
  if (IsInReplica()) Store(variable.spec(), Aggregate(variable, value), Value());
}

void ReplicaContext::AssignAdd(const DistributedVariable& variable, Value value) {
  if (IsInReplica()) Add(variable.spec(), Aggregate(variable, value));
}

void ReplicaContext::AssignSub(const DistributedVariable& variable, Value value) {
  AssignAdd(variable, compute::Neg(value));
}

void ReplicaContext::AssignAdd(const compute::VariableSpec& variable, Value value) {
  Add(variable, split_ == nullptr ? value : Sum(ReduceOp::kSum, value));
}

void ReplicaContext::Add(const compute::VariableSpec& variable, Value value) {
  const auto assigned = assigned_.find(variable.name);
  Value delta = value;
  if (assigned != assigned_.end()) {
    const Value before = assigned->second.delta;
    delta = before ? compute::Add(before, value) : Value();
  }
  Store(variable, compute::Add(Read(variable), value), delta);
}

void ReplicaContext::Store(const compute::VariableSpec& variable, Value value, Value delta) {
  if (!value) return;
  const TensorType& type = variable.type;
  if (type == value.type() && (type.dtype == DType::kFloat32 || type == kInt64Scalar)) {
    assigned_[variable.name] = {graph_.Variable(variable), value, delta};
    return;
  }
  graph_.Fail(absl::InvalidArgumentError(absl::StrCat("variable ", variable.name, " is ", type.ToString(),
                                                      ", the value assigned in a replica ", value.type().ToString(),
                                                      "; they must be of one type, float32 or an int64 scalar")));
}

std::vector<compute::VariableGradient> ReplicaContext::Split(const compute::VariableGradient& update) {
  if (split_ == nullptr || !update.gradient) return {update};
  // What is handed over must not change while updates are made.
  return split_->Update({update.variable, Copied(update.gradient)});
}

std::vector<Value> ReplicaContext::TrainableVariables() const {
  std::vector<Value> variables;
  for (const auto& node : graph_.nodes()) {
    if (node->Is(compute::op::Variable) && graph_.variable(*node).trainable) variables.push_back(node->output(0));
  }
  return variables;
}

void ReplicaContext::ApplyGradients(const OptimizerFn& optimizer, const compute::UpdateInputs& inputs,
                                    absl::Span<const compute::VariableGradient> variables,
                                    bool experimental_aggregate_gradients) {
  if (!IsInReplica() || !graph_.status().ok()) return;
  if (!experimental_aggregate_gradients && split_ != nullptr && num_replicas_ > 1) {
    graph_.Fail(absl::UnimplementedError(
        "`experimental_aggregate_gradients=False` is not supported for ParameterServerStrategy and "
        "CentralStorageStrategy"));
    return;
  }
  std::vector<compute::VariableGradient> updated;
  std::vector<std::string> without;
  std::vector<Value> all, gradients;
  for (const auto& [variable, gradient] : variables) {
    all.push_back(variable);
    if (!gradient) {
      without.push_back(absl::StrCat("'", variable.node()->name(), "'"));
      continue;
    }
    updated.push_back({variable, gradient});
    gradients.push_back(gradient);
  }
  if (updated.empty()) {
    graph_.Fail(compute::NoGradientsError(all));
    return;
  }
  if (!without.empty() && replica_id_ == 0) {
    LOG(WARNING) << "Gradients do not exist for variables [" << absl::StrJoin(without, ", ")
                 << "] when minimizing the loss.";
  }
  if (experimental_aggregate_gradients && sums()) {
    gradients =
        pack_sizes_ ? compute::AllReduce(gradients, *pack_sizes_) : compute::AllReduce(gradients, num_replicas_);
    for (size_t i = 0; i < updated.size(); ++i) updated[i].gradient = gradients[i];
  }
  WriteAssigned();
  compute::UpdateInputs taken = inputs;
  for (Value* const number : {&taken.learning_rate, &taken.loss_scale, &taken.apply}) {
    if (split_ == nullptr || !*number) continue;
    *number = split_->Number(number->dtype() == DType::kFloat32 ? Copied(*number) : *number);
  }
  std::vector<compute::VariableGradient> here;
  for (const compute::VariableGradient& update : updated) {
    for (const compute::VariableGradient& part : Split(update)) here.push_back(part);
  }
  if (!graph_.status().ok() || here.empty()) return;
  for (compute::Node* const node : optimizer(taken, here)) targets_.push_back(node);
}

void ReplicaContext::UpdateMovingAverages(absl::Span<const compute::MovingAverage> averages, double momentum) {
  if (!IsInReplica() || averages.empty() || !graph_.status().ok()) return;
  std::vector<Value> values;
  for (const auto& [variable, value] : averages) {
    if (!value) return;
    const compute::Node& node = *value.node();
    const bool is_of_nothing = node.num_inputs() > 0 && node.input(0).shape().num_elements() == 0;
    values.push_back(is_of_nothing ? Copied(variable) : value);
  }
  if (sums()) {
    values = compute::AllReduce(values, 1);
    const Value n = Scalar(static_cast<float>(num_replicas_));
    for (Value& value : values) value = compute::Div(value, n);
  }
  std::vector<compute::MovingAverage> updated;
  for (size_t i = 0; i < averages.size(); ++i) {
    for (const auto& [variable, value] : Split({averages[i].variable, values[i]})) updated.push_back({variable, value});
  }
  if (graph_.status().ok() && !updated.empty()) targets_.push_back(compute::UpdateMovingAverages(updated, momentum));
}

Value ReplicaContext::Copied(Value value) {
  if (!compute::Base(value).node()->Is(compute::op::Variable)) return value;
  if (value.dtype() == DType::kInt64) return compute::Add(value, graph_.Constant(Tensor(kInt64Scalar)));
  return compute::Mul(value, Scalar(1));
}

void ReplicaContext::WriteAssigned() {
  std::vector<compute::RunningSum> floats, added;
  std::vector<compute::Count> integers;
  for (const auto& [name, assignment] : std::exchange(assigned_, {})) {
    // Where others update the variable at the same time, what is added is added to their value.
    const bool adds = split_ != nullptr && assignment.delta;
    for (const auto& [variable, value] : Split({assignment.variable, adds ? assignment.delta : assignment.value})) {
      if (value.dtype() == DType::kFloat32) {
        (adds ? added : floats).push_back({variable, Copied(value)});
      } else {
        integers.push_back({variable, adds ? value : compute::Sub(value, variable)});
      }
    }
  }
  for (const auto* const sums : {&floats, &added}) {
    const Value add = graph_.Constant(Tensor::Scalar(sums == &added));
    if (!sums->empty()) targets_.push_back(compute::Accumulate(add, *sums));
  }
  if (!integers.empty()) targets_.push_back(compute::AssignAdd(integers));
}

void ReplicaContext::Finish(std::vector<Value>& outputs) {
  for (Value& output : outputs) {
    if (output && !assigned_.empty()) output = Copied(output);
  }
  WriteAssigned();
}

absl::StatusOr<compute::GraphRoots> BuildReplica(const ReplicaFn& fn, absl::Span<const TensorType> inputs,
                                                 ReplicaContext& context) {
  compute::Graph& graph = context.graph();
  graph.set_batch_parts(compute::BatchPartsOfReplica(context.num_replicas_in_sync()));
  // No update may be deferred, since variables can be read after any run.
  graph.set_step_context({.num_replicas = context.num_replicas_in_sync(), .needs_whole_updates = true});
  compute::GraphRoots roots;
  for (const TensorType& input : inputs) {
    roots.feeds.push_back(graph.Input(absl::StrCat("input_", roots.feeds.size()), input));
  }
  ASSIGN_OR_RETURN(roots.fetches, fn(context, roots.feeds));
  RETURN_IF_ERROR(graph.status());
  for (size_t i = 0; i < roots.fetches.size(); ++i) {
    if (roots.fetches[i]) continue;
    return absl::InvalidArgumentError(absl::StrCat("result ", i,
                                                   " of the function is no value: it is computed from one "
                                                   "that is missing"));
  }
  context.Finish(roots.fetches);
  RETURN_IF_ERROR(graph.status());
  roots.targets = context.targets();
  return roots;
}

}  // namespace official::distribute
