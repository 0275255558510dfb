#include "utils/distribute/coordinator/worker.h"

#include <chrono>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/distribute/exchange.h"

namespace official::coordinator {

using compute::Tensor;

absl::Status WorkerContext::MakeDataset(const std::string& name) {
  ASSIGN_OR_RETURN(const distribute::DatasetFn* const fn, functions_.FindDataset(name));
  ASSIGN_OR_RETURN(
      datasets_[name],
      (*fn)({.num_input_pipelines = num_workers(), .input_pipeline_id = worker(), .num_replicas_in_sync = 1}));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Tensor>> WorkerContext::Next(const std::string& dataset) {
  const auto made = datasets_.find(dataset);
  if (made == datasets_.end()) {
    return absl::FailedPreconditionError(absl::StrCat("there is no data set '", dataset,
                                                      "' on this worker; create it with "
                                                      "ClusterCoordinator::CreatePerWorkerDataset"));
  }
  ASSIGN_OR_RETURN(const std::optional<data::Batch> batch, made->second->Next());
  if (!batch) return absl::OutOfRangeError(absl::StrCat("End of sequence: data set '", dataset, "'"));
  std::vector<Tensor> tensors(batch->features.begin(), batch->features.end());
  tensors.insert(tensors.end(), batch->labels.begin(), batch->labels.end());
  return tensors;
}

absl::StatusOr<std::vector<Tensor>> WorkerContext::PerWorkerValues(const std::string& function) const {
  if (const auto made = values_.find(function); made != values_.end()) return made->second;
  return absl::FailedPreconditionError(absl::StrCat("there are no per-worker values of '", function,
                                                    "' on this worker; create them with "
                                                    "ClusterCoordinator::CreatePerWorkerValues"));
}

absl::StatusOr<WorkerContext::Step*> WorkerContext::FindStep(const std::string& name,
                                                             absl::Span<const compute::TensorType> inputs) {
  std::string key = name;
  for (const compute::TensorType& input : inputs) absl::StrAppend(&key, " ", input.ToString());
  if (const auto found = steps_.find(key); found != steps_.end()) return &found->second;
  ASSIGN_OR_RETURN(const distribute::ReplicaFn* const fn, functions_.FindStep(name));
  Step step;
  ASSIGN_OR_RETURN(step.built, distribute::BuildWorkerStep(*fn, inputs));
  compute::Graph read;
  for (const compute::VariableSpec& spec : step.built.read) {
    read.Variable(spec);
    step.read.push_back(spec.name);
  }
  RETURN_IF_ERROR(variables_.Create(read, /*seed=*/0));
  RETURN_IF_ERROR(client_.UpdatePlacement());
  ASSIGN_OR_RETURN(step.program, compute::Program::Compile(*step.built.graph, step.built.roots, device_, variables_,
                                                           {.arena = &arena_}));
  return &(steps_[key] = std::move(step));
}

absl::StatusOr<std::vector<Tensor>> WorkerContext::Run(const std::string& step, absl::Span<const Tensor> inputs) {
  std::vector<compute::TensorType> types;
  for (const Tensor& input : inputs) types.push_back(input.type());
  ASSIGN_OR_RETURN(Step* const found, FindStep(step, types));
  absl::StatusOr<std::vector<Tensor>> read = client_.Read(found->read);
  if (absl::IsNotFound(read.status())) {  // they may have been made since the step was built
    RETURN_IF_ERROR(client_.UpdatePlacement());
    read = client_.Read(found->read);
  }
  ASSIGN_OR_RETURN(const std::vector<Tensor> values, std::move(read));
  for (size_t i = 0; i < values.size(); ++i) RETURN_IF_ERROR(variables_.Write(found->read[i], values[i]));
  RETURN_IF_ERROR(found->program->Run(inputs));
  std::vector<Tensor> results, handed_over;
  for (size_t i = 0; i < found->built.roots.fetches.size(); ++i) {
    ASSIGN_OR_RETURN(const Tensor value, found->program->Fetch(static_cast<int>(i)));
    if (static_cast<int>(i) < found->built.num_results) {
      results.push_back(value.Clone());  // what is fetched is only there until the next run
    } else {
      handed_over.push_back(value);
    }
  }
  if (!handed_over.empty()) {
    RETURN_IF_ERROR(client_.Update(step, types, found->built.handed_over, handed_over));
  }
  return results;
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

absl::Status ServeWorker(const Functions& functions, distribute::ParameterServers& servers, compute::Device& device) {
  constexpr int kCoordinator = 0;
  // The coordinator may have nothing to do for long. If it is lost, the exchange says so.
  constexpr std::chrono::seconds kLong = std::chrono::hours(24 * 365);
  distribute::Exchange& exchange = servers.exchange();
  WorkerContext context(functions, servers, device);
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
