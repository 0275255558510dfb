#include "utils/distribute/coordinator/worker.h"

#include <chrono>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/distribute/exchange.h"

namespace official::coordinator {

using compute::Tensor;

namespace {

std::vector<compute::TensorType> TypesOf(absl::Span<const Tensor> tensors) {
  std::vector<compute::TensorType> types;
  for (const Tensor& tensor : tensors) types.push_back(tensor.type());
  return types;
}

}  // namespace

WorkerContext::WorkerContext(const Functions& functions, distribute::ParameterServers& servers,
                             distribute::Strategy& strategy)
    : functions_(functions), servers_(servers), strategy_(strategy), client_(servers) {
  for (int r = 0; r < strategy.num_local_replicas(); ++r) {
    if (r == 0 || !strategy.shares_memory()) {
      stores_.push_back(std::make_unique<compute::VariableStore>(strategy.device(r)));
    }
    arenas_.push_back(std::make_unique<compute::Arena>(strategy.device(r)));
  }
}

absl::Status WorkerContext::MakeDataset(const std::string& name) {
  ASSIGN_OR_RETURN(const distribute::DatasetFn* const fn, functions_.FindDataset(name));
  const distribute::InputContext context = {.num_input_pipelines = num_workers(),
                                            .input_pipeline_id = worker(),
                                            .num_replicas_in_sync = num_replicas_in_sync()};
  ASSIGN_OR_RETURN(datasets_[name], distribute::DistributeDatasetsFromFunction(
                                        strategy_, [&](const distribute::InputContext&) { return (*fn)(context); }));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<distribute::DistributedValue>> WorkerContext::NextPerReplica(const std::string& dataset) {
  const auto made = datasets_.find(dataset);
  if (made == datasets_.end() || made->second == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat("there is no data set '", dataset,
                                                      "' on this worker; create it with "
                                                      "ClusterCoordinator::CreatePerWorkerDataset"));
  }
  ASSIGN_OR_RETURN(const std::optional<distribute::DistributedBatch> batch, made->second->Next());
  if (!batch) return absl::OutOfRangeError(absl::StrCat("End of sequence: data set '", dataset, "'"));
  return batch->Arguments();
}

absl::StatusOr<std::vector<Tensor>> WorkerContext::Next(const std::string& dataset) {
  if (num_replicas_in_sync() > 1) {
    return absl::FailedPreconditionError(absl::StrCat("this worker has ", num_replicas_in_sync(),
                                                      " devices, and each needs a batch of data set '", dataset,
                                                      "'; use NextPerReplica and RunPerReplica"));
  }
  ASSIGN_OR_RETURN(const std::vector<distribute::DistributedValue> batch, NextPerReplica(dataset));
  ASSIGN_OR_RETURN(std::vector<Tensors> of_replica, distribute::ArgumentsOfReplicas(batch, 1));
  return std::move(of_replica[0]);
}

absl::StatusOr<std::vector<Tensor>> WorkerContext::PerWorkerValues(const std::string& function) const {
  if (const auto made = values_.find(function); made != values_.end()) return made->second;
  return absl::FailedPreconditionError(absl::StrCat("there are no per-worker values of '", function,
                                                    "' on this worker; create them with "
                                                    "ClusterCoordinator::CreatePerWorkerValues"));
}

absl::StatusOr<WorkerContext::Step*> WorkerContext::FindStep(const std::string& name,
                                                             absl::Span<const Tensors> inputs) {
  std::string key = name;
  for (const Tensors& of_device : inputs) {
    for (const Tensor& input : of_device) absl::StrAppend(&key, " ", input.type().ToString());
    absl::StrAppend(&key, ";");
  }
  if (const auto found = steps_.find(key); found != steps_.end()) return &found->second;
  ASSIGN_OR_RETURN(const distribute::ReplicaFn* const fn, functions_.FindStep(name));
  Step step;
  compute::Graph read;
  std::set<std::string> names;
  for (int r = 0; r < static_cast<int>(inputs.size()); ++r) {
    const distribute::ReplicaPlace place = {r, num_replicas_in_sync(), strategy_.pack_sizes()};
    ASSIGN_OR_RETURN(step.built.emplace_back(),
                     distribute::BuildReplicaStep(*fn, TypesOf(inputs[r]), place, distribute::Updates::kElsewhere));
    RETURN_IF_ERROR(distribute::CheckAlike(step.built[0], step.built[r], r));
    for (const compute::VariableSpec& spec : step.built[r].read) {
      read.Variable(spec);
      if (names.insert(spec.name).second) step.read.push_back(spec.name);
    }
  }
  RETURN_IF_ERROR(read.status());
  for (const auto& store : stores_) RETURN_IF_ERROR(store->Create(read, /*seed=*/0));
  RETURN_IF_ERROR(client_.UpdatePlacement());
  for (size_t r = 0; r < step.built.size(); ++r) {
    ASSIGN_OR_RETURN(step.programs.emplace_back(), compute::Program::Compile(*step.built[r].graph, step.built[r].roots,
                                                                             strategy_.device(static_cast<int>(r)),
                                                                             StoreOf(r), {.arena = arenas_[r].get()}));
  }
  return &(steps_[key] = std::move(step));
}

absl::Status WorkerContext::ReadVariables(const Step& step) {
  absl::StatusOr<Tensors> read = client_.Read(step.read);
  if (absl::IsNotFound(read.status())) {  // they may have been made since the step was built
    RETURN_IF_ERROR(client_.UpdatePlacement());
    read = client_.Read(step.read);
  }
  RETURN_IF_ERROR(read.status());
  for (const auto& store : stores_) {
    for (size_t i = 0; i < read->size(); ++i) RETURN_IF_ERROR(store->Write(step.read[i], (*read)[i]));
  }
  return absl::OkStatus();
}

absl::Status WorkerContext::HandOver(const std::string& name, const Step& step, const Tensors& inputs) {
  const distribute::ReplicaStep& first = step.built[0];
  Tensors handed_over;
  for (size_t i = first.num_results; i < first.roots.fetches.size(); ++i) {
    ASSIGN_OR_RETURN(handed_over.emplace_back(), step.programs[0]->Fetch(static_cast<int>(i)));
  }
  if (handed_over.empty()) return absl::OkStatus();
  return client_.Update(name, TypesOf(inputs), first.handed_over, handed_over);
}

absl::StatusOr<std::vector<distribute::PerReplica>> WorkerContext::RunPerReplica(
    const std::string& step, absl::Span<const distribute::DistributedValue> inputs) {
  const int num_replicas = strategy_.num_local_replicas();
  ASSIGN_OR_RETURN(const std::vector<Tensors> of_replicas, distribute::ArgumentsOfReplicas(inputs, num_replicas));
  ASSIGN_OR_RETURN(Step* const found, FindStep(step, of_replicas));
  RETURN_IF_ERROR(ReadVariables(*found));
  std::vector<distribute::PerReplica> results(found->built[0].num_results);
  for (distribute::PerReplica& result : results) result.values.resize(num_replicas);
  RETURN_IF_ERROR(strategy_.Run([&](int r) -> absl::Status {
    RETURN_IF_ERROR(found->programs[r]->Run(of_replicas[r]));
    for (size_t i = 0; i < results.size(); ++i) {
      ASSIGN_OR_RETURN(const Tensor value, found->programs[r]->Fetch(static_cast<int>(i)));
      results[i].values[r] = value.Clone();  // what is fetched is only there until the next run
    }
    return absl::OkStatus();
  }));
  RETURN_IF_ERROR(HandOver(step, *found, of_replicas[0]));
  return results;
}

absl::StatusOr<std::vector<Tensor>> WorkerContext::Run(const std::string& step, absl::Span<const Tensor> inputs) {
  const std::vector<distribute::DistributedValue> same(inputs.begin(), inputs.end());
  ASSIGN_OR_RETURN(const std::vector<distribute::PerReplica> results, RunPerReplica(step, same));
  Tensors of_first;
  for (const distribute::PerReplica& result : results) of_first.push_back(result.values[0]);
  return of_first;
}

WorkerAnswer WorkerContext::Answer(const WorkerRequest& request) {
  if (request.kind == WorkerRequest::Kind::kMakeDataset) {
    RETURN_IF_ERROR(MakeDataset(request.name));
    return std::vector<Tensor>{};
  }
  ASSIGN_OR_RETURN(const WorkerFn* const fn, functions_.Find(request.name));
  ASSIGN_OR_RETURN(std::vector<Tensor> results, (*fn)(*this, request.arguments));
  if (request.kind == WorkerRequest::Kind::kMakeValues) values_[request.name] = results;
  return results;
}

absl::Status ServeWorker(const Functions& functions, distribute::ParameterServers& servers,
                         distribute::Strategy& strategy) {
  constexpr int kCoordinator = 0;
  // The coordinator may have nothing to do for long. If it is lost, the exchange says so.
  constexpr std::chrono::seconds kLong = std::chrono::hours(24 * 365);
  distribute::Exchange& exchange = servers.exchange();
  WorkerContext context(functions, servers, strategy);
  for (;;) {
    ASSIGN_OR_RETURN(const std::string frame, exchange.Receive(kCoordinator, kChannel, kLong));
    if (frame == kEnd) return servers.Leave();
    ASSIGN_OR_RETURN(const WorkerRequest request, UnpackRequest(frame));
    const WorkerAnswer answer = context.Answer(request);
    // Without a server no function succeeds: that is an error of the job.
    if (!answer.ok()) RETURN_IF_ERROR(exchange.Check());
    RETURN_IF_ERROR(exchange.Send(kCoordinator, kChannel, PackAnswer(answer)));
  }
}

}  // namespace official::coordinator
