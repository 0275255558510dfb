#include "utils/distribute/coordinator/variable_server.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/distribute/tensor_bytes.h"

namespace official::coordinator {

using compute::Tensor;

absl::StatusOr<std::string> VariableServer::Answer(int /*worker*/, std::string bytes) {
  absl::string_view request(bytes);
  const auto asked = request.empty() ? Request{} : static_cast<Request>(request[0]);
  request.remove_prefix(request.empty() ? 0 : 1);
  const std::lock_guard<std::mutex> lock(mutex_);
  switch (asked) {
    case Request::kList:
      return List();
    case Request::kWrite:
      RETURN_IF_ERROR(Write(request));
      return "";
    case Request::kRead:
      return Read(request);
    case Request::kPrepare:
      RETURN_IF_ERROR(TakeStep(request).status());
      return "";
    case Request::kUpdate: {
      ASSIGN_OR_RETURN(Step* const step, TakeStep(request));
      std::vector<Tensor> feeds;
      for (const compute::Value& feed : step->built.roots.feeds) {
        ASSIGN_OR_RETURN(const Tensor elements, distribute::TakeElements(feed.type(), request));
        feeds.push_back(elements.Clone());
      }
      if (!request.empty()) {
        return absl::DataLossError(
            "a worker has built a step with other updates than this ps; all tasks must build it alike");
      }
      RETURN_IF_ERROR(step->update->Run(feeds));
      return "";
    }
  }
  return absl::DataLossError("a message to a ps is no request");
}

absl::StatusOr<std::string> VariableServer::List() const {
  std::string answer;
  for (const compute::VariableSpec& spec : variables_.specs()) {
    distribute::AppendText(spec.name, answer);
    distribute::AppendType(spec.type, answer);
    const distribute::ShardName shard = shards_.Find(spec);
    distribute::AppendText(shard.variable, answer);
    distribute::AppendNumber(shard.number, answer);
  }
  return answer;
}

absl::Status VariableServer::Write(absl::string_view request) {
  while (!request.empty()) {
    ASSIGN_OR_RETURN(const std::string name, distribute::TakeText(request));
    ASSIGN_OR_RETURN(const Tensor value, distribute::TakeTensor(request));
    distribute::ShardName shard;
    ASSIGN_OR_RETURN(shard.variable, distribute::TakeText(request));
    ASSIGN_OR_RETURN(const int64_t number, distribute::TakeNumber(request));
    shard.number = static_cast<int>(number);
    if (!variables_.Has(name)) {
      shards_.Add(name, shard);
      compute::Graph graph;
      // A step that asks for the trainable variables does not get shards.
      graph.Variable({name, value.type(), compute::Initializer::Zeros(), /*trainable=*/false});
      RETURN_IF_ERROR(variables_.Create(graph, /*seed=*/0));
    } else if (const distribute::ShardName is = shards_.Find({name, value.type(), {}}); is != shard) {
      return absl::AlreadyExistsError(absl::StrCat("variable ", name, " would be shard ", is.number, " of ",
                                                   is.variable, " and shard ", shard.number, " of ", shard.variable,
                                                   "; give one of the variables another name"));
    }
    RETURN_IF_ERROR(variables_.Write(name, value));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> VariableServer::Read(absl::string_view request) const {
  std::string answer;
  while (!request.empty()) {
    ASSIGN_OR_RETURN(const std::string name, distribute::TakeText(request));
    ASSIGN_OR_RETURN(const Tensor value, variables_.Read(name));
    distribute::AppendTensor(value, answer);
  }
  return answer;
}

std::vector<compute::VariableSpec> VariableServer::PlacedHere(const std::string& variable) const {
  std::map<int, compute::VariableSpec> shards;  // by number
  for (const compute::VariableSpec& spec : variables_.specs()) {
    const distribute::ShardName shard = shards_.Find(spec);
    if (shard.variable == variable) shards[shard.number] = spec;
  }
  std::vector<compute::VariableSpec> specs;
  for (const auto& [number, spec] : shards) specs.push_back(spec);
  return specs;
}

absl::StatusOr<VariableServer::Step*> VariableServer::TakeStep(absl::string_view& request) {
  const absl::string_view whole = request;
  ASSIGN_OR_RETURN(const std::string name, distribute::TakeText(request));
  ASSIGN_OR_RETURN(const int64_t num_inputs, distribute::TakeNumber(request));
  std::vector<compute::TensorType> types;
  for (int64_t i = 0; i < num_inputs; ++i) {
    ASSIGN_OR_RETURN(types.emplace_back(), distribute::TakeType(request));
  }
  const std::string key(whole.substr(0, whole.size() - request.size()));
  if (const auto found = steps_.find(key); found != steps_.end()) return &found->second;
  ASSIGN_OR_RETURN(const distribute::ReplicaFn* const fn, functions_.FindStep(name));
  Step step;
  ASSIGN_OR_RETURN(step.built, distribute::BuildUpdateStep(*fn, types, num_replicas_, [&](const std::string& variable) {
                     return PlacedHere(variable);
                   }));
  compute::Graph made;  // only with what the update needs, so that other variables take no memory
  for (const compute::VariableSpec& spec : step.built.variables) made.Variable(spec);
  RETURN_IF_ERROR(made.status());
  RETURN_IF_ERROR(variables_.Create(made, /*seed=*/0));
  ASSIGN_OR_RETURN(step.update, compute::Program::Compile(*step.built.graph, step.built.roots, device_, variables_,
                                                          {.arena = &arena_}));
  return &(steps_[key] = std::move(step));
}

}  // namespace official::coordinator
