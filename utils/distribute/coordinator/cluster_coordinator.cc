#include "utils/distribute/coordinator/cluster_coordinator.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "utils/compute/core/status.h"
#include "utils/distribute/custom_loop/split_step.h"
#include "utils/logs/log.h"

namespace official::coordinator {

using compute::Tensor;

namespace {

int64_t NextId() {
  static std::atomic<int64_t> last = 0;
  return ++last;
}

}  // namespace

ClusterCoordinator::ClusterCoordinator(const Functions& functions, distribute::ParameterServers& servers,
                                       const CoordinatorOptions& options)
    : id_(NextId()),
      functions_(functions),
      servers_(servers),
      options_(options),
      client_(servers),
      queue_(options.queue_capacity) {
  for (int worker = 1; worker < servers.num_workers(); ++worker) present_.insert(worker);
  for (const int worker : std::vector<int>(present_.begin(), present_.end())) {
    threads_.emplace_back([this, worker] { Dispatch(worker); });
  }
}

ClusterCoordinator::~ClusterCoordinator() { queue_.Close(absl::OkStatus()); }

absl::Status ClusterCoordinator::Failed(const absl::Status& status) {
  const bool is_of_exchange = absl::IsCancelled(status) || absl::IsDeadlineExceeded(status);
  return is_of_exchange ? absl::UnavailableError(status.message()) : status;
}

// ---- Variables ----

absl::Status ClusterCoordinator::CreateVariables(const std::string& step,
                                                 absl::Span<const compute::TensorType> inputs) {
  ASSIGN_OR_RETURN(const distribute::ReplicaFn* const fn, functions_.FindStep(step));
  ASSIGN_OR_RETURN(const distribute::ReplicaStep built,
                   distribute::BuildReplicaStep(*fn, inputs, {.num_replicas = num_replicas_in_sync()},
                                                distribute::Updates::kElsewhere));
  ASSIGN_OR_RETURN(const std::vector<std::string> before, TrackedNames());
  for (const compute::VariableSpec& spec : built.graph->variables()) {
    if (client_.placed().count(spec.name) > 0) continue;
    const Tensor value = compute::InitialValue(spec.initializer, spec.type, spec.name, options_.seed);
    ASSIGN_OR_RETURN(const int64_t num_shards, distribute::NumShards(options_.variable_partitioner, spec));
    RETURN_IF_ERROR(Failed(client_.Create(spec.name, value, num_shards)));
  }
  RETURN_IF_ERROR(Failed(client_.Prepare(step, inputs)));
  ASSIGN_OR_RETURN(std::vector<std::string> names, TrackedNames());
  std::erase_if(names, [&](const std::string& name) { return std::binary_search(before.begin(), before.end(), name); });
  return Restore(names);
}

absl::StatusOr<std::vector<std::string>> ClusterCoordinator::TrackedNames() {
  RETURN_IF_ERROR(Failed(client_.UpdatePlacement()));
  std::vector<std::string> names;
  for (const auto& [name, placed] : client_.placed()) names.push_back(name);
  return names;
}

absl::StatusOr<Tensor> ClusterCoordinator::ReadVariable(const std::string& name) {
  const absl::StatusOr<std::vector<Tensor>> values = client_.Read({name});
  RETURN_IF_ERROR(Failed(values.status()));
  return values->front();
}

absl::Status ClusterCoordinator::AssignVariable(const std::string& name, const Tensor& value) {
  if (client_.placed().count(name) == 0) return absl::NotFoundError(absl::StrCat("there is no variable ", name));
  return Failed(client_.Write(name, value));
}

absl::Status ClusterCoordinator::RestoreVariables(distribute::ReadVariableFn read) {
  read_ = std::move(read);
  ASSIGN_OR_RETURN(const std::vector<std::string> names, TrackedNames());
  return Restore(names);
}

absl::Status ClusterCoordinator::Restore(absl::Span<const std::string> names) {
  if (read_ == nullptr) return absl::OkStatus();
  for (const std::string& name : names) {
    ASSIGN_OR_RETURN(const std::optional<Tensor> value, read_({name, client_.placed().at(name).type, {}}));
    if (value) RETURN_IF_ERROR(AssignVariable(name, *value));
  }
  return absl::OkStatus();
}

// ---- Functions ----

void ClusterCoordinator::CreatePerWorkerDataset(const std::string& name) {
  const std::lock_guard<std::mutex> lock(mutex_);
  resources_.push_back({.kind = WorkerRequest::Kind::kMakeDataset, .name = name});
}

void ClusterCoordinator::CreatePerWorkerValues(const std::string& function, absl::Span<const Tensor> arguments) {
  const std::lock_guard<std::mutex> lock(mutex_);
  resources_.push_back(
      {.kind = WorkerRequest::Kind::kMakeValues, .name = function, .arguments = {arguments.begin(), arguments.end()}});
}

absl::StatusOr<RemoteValue> ClusterCoordinator::Schedule(const std::string& function,
                                                         absl::Span<const Tensor> arguments) {
  RETURN_IF_ERROR(functions_.Find(function).status());
  const Closure closure = {function, {arguments.begin(), arguments.end()}};
  RETURN_IF_ERROR(queue_.Put(closure));
  return closure.result;
}

absl::Status ClusterCoordinator::Join() { return queue_.Wait(); }

absl::StatusOr<bool> ClusterCoordinator::Done() { return queue_.Done(); }

absl::StatusOr<std::vector<Tensor>> ClusterCoordinator::Fetch(const RemoteValue& value) { return value.Fetch(); }

absl::Status ClusterCoordinator::Finish() {
  queue_.Close(absl::OkStatus());
  threads_.clear();
  RETURN_IF_ERROR(servers_.Leave());
  const auto wait = [this](int worker) -> absl::StatusOr<bool> {
    for (bool has_left = false; !has_left;) {
      // It may have come back since it was told.
      RETURN_IF_ERROR(servers_.exchange().Send(worker, kChannel, kEnd));
      ASSIGN_OR_RETURN(has_left, servers_.HasLeft(worker));
    }
    return true;
  };
  return servers_.FinishAfterWorkers(wait).status();
}

// ---- Workers ----

void ClusterCoordinator::Dispatch(int worker) {
  while (!queue_.is_closed()) {
    absl::Status status = RunFunctions(worker);
    if (absl::IsUnavailable(status)) {
      SetPresent(worker, false);
      status = WaitForReturn(worker);
      if (status.ok() && !queue_.is_closed()) SetPresent(worker, true);
    }
    if (!status.ok()) queue_.Close(Failed(status));
  }
}

absl::Status ClusterCoordinator::RunFunctions(int worker) {
  constexpr std::chrono::seconds kCheckEvery(1);
  size_t num_made = 0;
  while (!queue_.is_closed()) {
    std::optional<Closure> closure = queue_.Take(kCheckEvery);
    if (!closure) {
      RETURN_IF_ERROR(servers_.exchange().Check());
      continue;
    }
    WorkerAnswer answer;
    const absl::Status status = Run(worker, *closure, num_made, answer);
    if (status.ok()) {
      queue_.Finish(*closure, std::move(answer));
      continue;
    }
    if (absl::IsUnavailable(status)) {
      LOG(WARNING) << status.message() << "; another worker runs '" << closure->function << "'";
    } else {
      queue_.Close(Failed(status));
    }
    queue_.PutBack(*std::move(closure));
    return status;
  }
  return absl::OkStatus();
}

absl::Status ClusterCoordinator::WaitForReturn(int worker) {
  constexpr std::chrono::milliseconds kLookEvery(100);
  while (!queue_.is_closed()) {
    const absl::Status back = servers_.exchange().WaitForReturn(worker, kLookEvery);
    if (!absl::IsDeadlineExceeded(back)) return back;
    RETURN_IF_ERROR(CheckPresence());
  }
  return absl::OkStatus();
}

absl::Status ClusterCoordinator::Run(int worker, const Closure& closure, size_t& num_made, WorkerAnswer& answer) {
  for (;; ++num_made) {
    WorkerRequest resource;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (num_made == resources_.size()) break;
      resource = resources_[num_made];
    }
    RETURN_IF_ERROR(Ask(worker, resource, answer));
    if (!answer.ok()) return absl::OkStatus();
  }
  return Ask(worker, {.name = closure.function, .arguments = closure.arguments}, answer);
}

absl::Status ClusterCoordinator::Ask(int worker, const WorkerRequest& request, WorkerAnswer& answer) {
  // A function may take long. If the worker is lost, the exchange says so.
  constexpr std::chrono::seconds kLong = std::chrono::hours(24 * 365);
  RETURN_IF_ERROR(servers_.exchange().Send(worker, kChannel, PackRequest(request)));
  ASSIGN_OR_RETURN(std::string frame, servers_.exchange().Receive(worker, kChannel, kLong));
  answer = UnpackAnswer(std::move(frame));
  return absl::OkStatus();
}

void ClusterCoordinator::SetPresent(int worker, bool present) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (present) {
    present_.insert(worker);
    LOG(INFO) << servers_.NameOf(worker) << " is back and runs functions again";
    return;
  }
  present_.erase(worker);
  if (!present_.empty()) return;
  alone_since_ = std::chrono::steady_clock::now();
  LOG(WARNING) << "no worker is left; waits up to " << options_.worker_timeout.count() << " s for one of "
               << WorkerNames() << " to come back";
}

absl::Status ClusterCoordinator::CheckPresence() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!present_.empty()) return absl::OkStatus();
  if (std::chrono::steady_clock::now() - alone_since_ < options_.worker_timeout) return absl::OkStatus();
  return absl::DeadlineExceededError(absl::StrCat("there has been no worker for ", options_.worker_timeout.count(),
                                                  " s; start the job again: ", WorkerNames()));
}

std::string ClusterCoordinator::WorkerNames() const {
  std::vector<std::string> names;
  for (int worker = 1; worker < servers_.num_workers(); ++worker) names.push_back(servers_.NameOf(worker));
  return absl::StrJoin(names, ", ");
}

}  // namespace official::coordinator
