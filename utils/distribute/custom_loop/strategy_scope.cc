#include "utils/distribute/custom_loop/strategy_scope.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "utils/compute/core/status.h"
#include "utils/distribute/custom_loop/current_strategy.h"
#include "utils/distribute/tensor_bytes.h"

namespace official::distribute {

using compute::Tensor;
using compute::Value;

namespace {

std::string TypesText(absl::Span<const Tensor> inputs) {
  return absl::StrJoin(inputs, " ",
                       [](std::string* out, const Tensor& input) { out->append(input.type().ToString()); });
}

std::vector<compute::TensorType> TypesOf(absl::Span<const Tensor> inputs) {
  std::vector<compute::TensorType> types;
  for (const Tensor& input : inputs) types.push_back(input.type());
  return types;
}

bool HasOneCopy(const Strategy& strategy) {
  return strategy.name() == "central_storage" && strategy.num_local_replicas() > 1;
}

}  // namespace

StrategyScope::StrategyScope(Strategy& strategy, uint64_t seed) : seed_(seed), replicas_{strategy, {}} {
  replicas_.one_copy = HasOneCopy(strategy);
  for (int r = 0; r < strategy.num_local_replicas(); ++r) {
    arenas_.push_back(std::make_unique<compute::Arena>(strategy.device(r)));
    if (r > 0 && replicas_.one_copy) continue;
    replicas_.stores.push_back(std::make_unique<compute::VariableStore>(strategy.device(r)));
  }
  if (replicas_.one_copy) arenas_.push_back(std::make_unique<compute::Arena>(strategy.device(0)));
}

absl::StatusOr<std::unique_ptr<StrategyScope>> StrategyScope::Create(Strategy& strategy, uint64_t seed) {
  if (HasOneCopy(strategy) && !strategy.shares_memory()) {
    return absl::InvalidArgumentError(
        absl::StrCat("central_storage has one copy of each variable in the memory of the host, and the ",
                     strategy.num_local_replicas(), " devices have memory of their own; use mirrored"));
  }
  std::string own;
  AppendNumber(static_cast<int64_t>(seed), own);
  ASSIGN_OR_RETURN(const std::string bytes, strategy.FromChief(own));
  absl::string_view of_chief = bytes;
  ASSIGN_OR_RETURN(const int64_t common, TakeNumber(of_chief));
  return std::unique_ptr<StrategyScope>(new StrategyScope(strategy, static_cast<uint64_t>(common)));
}

absl::StatusOr<DistributedVariable*> StrategyScope::CreateVariable(const VariableOptions& options) {
  RETURN_IF_ERROR(replicas_.CheckCrossReplicaContext());
  if (replicas_.stores[0]->Has(options.name)) {
    return absl::AlreadyExistsError(absl::StrCat("there is a variable ", options.name, " already"));
  }
  ASSIGN_OR_RETURN(auto variable, DistributedVariable::Create(replicas_, options));
  std::string own;
  AppendTensor(options.initial_value, own);
  ASSIGN_OR_RETURN(const std::string bytes, strategy().FromChief(own));
  absl::string_view of_chief = bytes;
  ASSIGN_OR_RETURN(const Tensor initial_value, TakeTensor(of_chief));
  if (initial_value.type() != options.initial_value.type()) {
    return absl::InvalidArgumentError(absl::StrCat("the initial value of variable ", options.name, " is ",
                                                   options.initial_value.type().ToString(), ", and the chief's ",
                                                   initial_value.type().ToString()));
  }
  compute::Graph graph;
  graph.Variable(variable->spec());
  for (const auto& store : replicas_.stores) {
    RETURN_IF_ERROR(store->Create(graph, seed_));
    RETURN_IF_ERROR(store->Write(options.name, initial_value));
  }
  variables_[options.name] = std::move(variable);
  RETURN_IF_ERROR(Restore(options.name));
  return variables_[options.name].get();
}

absl::StatusOr<DistributedVariable*> StrategyScope::Variable(absl::string_view name) {
  if (const auto made = variables_.find(std::string(name)); made != variables_.end()) return made->second.get();
  for (const compute::VariableSpec& spec : replicas_.stores[0]->specs()) {
    if (spec.name != name) continue;
    return (variables_[spec.name] = DistributedVariable::OfFunction(replicas_, spec)).get();
  }
  return absl::NotFoundError(absl::StrCat("there is no variable ", name));
}

std::vector<std::string> StrategyScope::VariableNames() const {
  std::vector<std::string> names;
  for (const compute::VariableSpec& spec : replicas_.stores[0]->specs()) names.push_back(spec.name);
  return names;
}

absl::StatusOr<Tensor> StrategyScope::ReadTracked(const std::string& name) {
  ASSIGN_OR_RETURN(const DistributedVariable* const variable, Variable(name));
  return variable->Read();
}

absl::Status StrategyScope::RestoreVariables(ReadVariableFn read) {
  RETURN_IF_ERROR(replicas_.CheckCrossReplicaContext());
  read_ = std::move(read);
  for (const std::string& name : VariableNames()) RETURN_IF_ERROR(Restore(name));
  return absl::OkStatus();
}

absl::Status StrategyScope::Restore(const std::string& name) {
  if (read_ == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(DistributedVariable* const variable, Variable(name));
  const auto read = [&]() -> absl::StatusOr<std::string> {
    std::string bytes;
    if (!strategy().is_chief()) return bytes;
    ASSIGN_OR_RETURN(const std::optional<Tensor> value, read_(variable->spec()));
    if (value) AppendTensor(*value, bytes);
    return bytes;
  };
  ASSIGN_OR_RETURN(const std::string bytes, strategy().FromChief(read()));
  absl::string_view of_chief = bytes;
  if (of_chief.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const Tensor value, TakeTensor(of_chief));
  return variable->Assign(value);
}

absl::StatusOr<ReplicaStep> StrategyScope::Build(const ReplicaFunction& function, int replica,
                                                 absl::Span<const compute::TensorType> inputs) {
  const int id = static_cast<int>(strategy().local_replicas().begin) + replica;
  const UnderStrategy under(strategy());
  replicas_.in_replica_context = true;
  absl::StatusOr<ReplicaStep> built =
      BuildReplicaStep(function.fn_, inputs, {id, num_replicas_in_sync(), strategy().pack_sizes()},
                       replicas_.one_copy ? Updates::kElsewhere : Updates::kHere);
  replicas_.in_replica_context = false;
  return built;
}

absl::StatusOr<ReplicaFunction::Update> StrategyScope::BuildUpdate(const ReplicaFunction& function,
                                                                   absl::Span<const Tensor> inputs) {
  ReplicaFunction::Update update;
  const auto placed_here = [this](const std::string& variable) {
    std::vector<compute::VariableSpec> found;
    for (const compute::VariableSpec& spec : StoreOf(0).specs()) {
      if (spec.name == variable) found.push_back(spec);
    }
    return found;
  };
  const UnderStrategy under(strategy());
  replicas_.in_replica_context = true;
  absl::StatusOr<UpdateStep> step = BuildUpdateStep(function.fn_, TypesOf(inputs), num_replicas_in_sync(), placed_here);
  replicas_.in_replica_context = false;
  RETURN_IF_ERROR(step.status());
  update.step = *std::move(step);
  if (update.step.roots.targets.empty()) return update;
  compute::Graph made;  // what an optimizer has added
  for (const compute::VariableSpec& spec : update.step.variables) made.Variable(spec);
  RETURN_IF_ERROR(made.status());
  RETURN_IF_ERROR(CreateVariables(made));
  ASSIGN_OR_RETURN(update.program,
                   compute::Program::Compile(*update.step.graph, update.step.roots, strategy().device(0), StoreOf(0),
                                             {.arena = arenas_.back().get()}));
  return update;
}

absl::Status StrategyScope::RunUpdate(ReplicaFunction& function, const std::string& types,
                                      absl::Span<const Tensor> inputs, const ReplicaFunction::Built& first) {
  auto found = function.updates_.find(types);
  if (found == function.updates_.end()) {
    ASSIGN_OR_RETURN(ReplicaFunction::Update made, BuildUpdate(function, inputs));
    found = function.updates_.emplace(types, std::move(made)).first;
  }
  if (found->second.program == nullptr) return absl::OkStatus();
  std::vector<Tensor> handed_over;
  for (size_t i = first.step.num_results; i < first.step.roots.fetches.size(); ++i) {
    ASSIGN_OR_RETURN(handed_over.emplace_back(), first.program->Fetch(static_cast<int>(i)));
  }
  return found->second.program->Run(handed_over);
}

absl::Status StrategyScope::CreateVariables(const compute::Graph& graph) {
  std::vector<std::string> added;
  for (const compute::VariableSpec& spec : graph.variables()) {
    if (!replicas_.stores[0]->Has(spec.name)) added.push_back(spec.name);
  }
  for (const auto& store : replicas_.stores) RETURN_IF_ERROR(store->Create(graph, seed_));
  for (const std::string& name : added) RETURN_IF_ERROR(Restore(name));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<PerReplica>> StrategyScope::Run(ReplicaFunction& function,
                                                           absl::Span<const DistributedValue> arguments) {
  RETURN_IF_ERROR(replicas_.CheckCrossReplicaContext());
  if (function.scope_ != nullptr && function.scope_ != this) {
    return absl::FailedPreconditionError(
        "Mixing different tf.distribute.Strategy objects: the function was run in another scope before");
  }
  function.scope_ = this;
  const int num_local = strategy().num_local_replicas();
  function.built_.resize(num_local);
  ASSIGN_OR_RETURN(const std::vector<std::vector<Tensor>> inputs, ArgumentsOfReplicas(arguments, num_local));
  std::vector<ReplicaFunction::Built*> built(num_local);
  for (int r = 0; r < num_local; ++r) {
    const std::string types = TypesText(inputs[r]);
    auto found = function.built_[r].find(types);
    if (found == function.built_[r].end()) {
      ReplicaFunction::Built made;
      ASSIGN_OR_RETURN(made.step, Build(function, r, TypesOf(inputs[r])));
      RETURN_IF_ERROR(CreateVariables(*made.step.graph));
      found = function.built_[r].emplace(types, std::move(made)).first;
    }
    built[r] = &found->second;
    RETURN_IF_ERROR(CheckAlike(built[0]->step, built[r]->step, r));
  }
  std::vector<PerReplica> results(built[0]->step.num_results);
  for (PerReplica& result : results) result.values.resize(num_local);
  RETURN_IF_ERROR(strategy().Run([&](int r) -> absl::Status {
    ReplicaFunction::Built& own = *built[r];
    if (own.program == nullptr) {
      ASSIGN_OR_RETURN(own.program, compute::Program::Compile(*own.step.graph, own.step.roots, strategy().device(r),
                                                              StoreOf(r), {.arena = arenas_[r].get()}));
    }
    RETURN_IF_ERROR(own.program->Run(inputs[r]));
    for (size_t i = 0; i < results.size(); ++i) {
      ASSIGN_OR_RETURN(const Tensor value, own.program->Fetch(static_cast<int>(i)));
      results[i].values[r] = value.Clone();  // what is fetched is only there until the next run
    }
    return absl::OkStatus();
  }));
  if (replicas_.one_copy) {
    RETURN_IF_ERROR(
        strategy().RunAlone(0, [&] { return RunUpdate(function, TypesText(inputs[0]), inputs[0], *built[0]); }));
  }
  return results;
}

absl::StatusOr<Tensor> StrategyScope::Reduce(ReduceOp op, const DistributedValue& value, std::optional<int> axis) {
  RETURN_IF_ERROR(replicas_.CheckCrossReplicaContext());
  const auto* const plain = std::get_if<Tensor>(&value);
  if (plain != nullptr && !axis) {
    if (op == ReduceOp::kSum && num_replicas_in_sync() > 1) RETURN_IF_ERROR(CheckPlainSum(*plain));
    return *plain;
  }
  const PerReplica own = plain == nullptr ? std::get<PerReplica>(value)
                                          : PerReplica{std::vector<Tensor>(strategy().num_local_replicas(), *plain)};
  ASSIGN_OR_RETURN(const std::vector<Tensor> all, replicas_.OfAllReplicas(own));
  CrossDeviceOps* const ops = strategy().cross_device_ops();
  return ops == nullptr || all.size() == 1 ? ReduceTensors(op, all, axis) : ReduceTensorsBy(*ops, op, all, axis);
}

absl::StatusOr<Tensor> StrategyScope::Gather(const PerReplica& value, int axis) {
  RETURN_IF_ERROR(replicas_.CheckCrossReplicaContext());
  ASSIGN_OR_RETURN(const std::vector<Tensor> all, replicas_.OfAllReplicas(value));
  return ConcatTensors(all, axis);
}

std::vector<Tensor> StrategyScope::LocalResults(const DistributedValue& value) {
  const auto* const per_replica = std::get_if<PerReplica>(&value);
  return per_replica != nullptr ? per_replica->values : std::vector<Tensor>{std::get<Tensor>(value)};
}

absl::StatusOr<PerReplica> StrategyScope::DistributeValuesFromFunction(
    absl::FunctionRef<absl::StatusOr<Tensor>(const ValueContext& context)> fn) {
  PerReplica result;
  const compute::Share& local = strategy().local_replicas();
  for (int64_t r = local.begin; r < local.end; ++r) {
    ASSIGN_OR_RETURN(Tensor value, fn({static_cast<int>(r), num_replicas_in_sync()}));
    result.values.push_back(std::move(value));
  }
  return result;
}

}  // namespace official::distribute
