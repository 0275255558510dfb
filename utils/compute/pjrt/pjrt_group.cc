#include "utils/compute/pjrt/pjrt_group.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "utils/compute/core/status.h"
#include "utils/compute/pjrt/pjrt_device.h"

namespace official::compute {

absl::StatusOr<std::unique_ptr<CommunicatorGroup>> PjrtGroup::Make(absl::Span<Device* const> devices,
                                                                   std::chrono::seconds deadline,
                                                                   const std::optional<WorldRanks>& world) {
  if (world) return absl::InvalidArgumentError("the devices of a PJRT plugin do not train with other processes");
  std::vector<PJRT_Device*> of_plugin;
  for (Device* const device : devices) of_plugin.push_back(static_cast<PjrtDevice*>(device)->device());
  return std::unique_ptr<CommunicatorGroup>(
      new PjrtGroup(static_cast<PjrtDevice*>(devices[0])->shared_client(), std::move(of_plugin), deadline));
}

PjrtGroup::PjrtGroup(std::shared_ptr<const PjrtClient> client, std::vector<PJRT_Device*> devices,
                     std::chrono::seconds deadline)
    : client_(std::move(client)), devices_(std::move(devices)), deadline_(deadline) {
  const size_t n = devices_.size();
  for (size_t rank = 0; rank < n; ++rank) members_.push_back(std::make_unique<Member>(*this, static_cast<int>(rank)));
  given_.resize(n);
  arguments_.resize(n);
  results_.resize(n);
}

PjrtGroup::~PjrtGroup() = default;

Communicator& PjrtGroup::communicator(int rank) { return *members_[rank]; }

void PjrtGroup::Abort(const absl::Status& cause) {
  const std::lock_guard<std::mutex> lock(mutex_);
  aborted_ = true;
  changed_.notify_all();
}

absl::Status PjrtGroup::Reset() {
  executables_.ForgetErrors();
  const std::lock_guard<std::mutex> lock(mutex_);
  aborted_ = false;
  std::fill(given_.begin(), given_.end(), nullptr);
  for (std::vector<PjrtBuffer>& arguments : arguments_) arguments.clear();
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<PjrtExecutable>> PjrtGroup::Compile(const std::string& module) {
  return executables_.Get(module, [&] { return client_->CompileForAll(module, devices_); });
}

void PjrtGroup::ExecuteOnAll(int num_results) {
  absl::StatusOr<std::vector<PjrtResults>> results = absl::InvalidArgumentError(
      "the devices compute different programs; with several devices of a PJRT plugin every "
      "batch must be a multiple of their number");
  const bool same = std::all_of(given_.begin(), given_.end(), [&](PjrtExecutable* e) { return e == given_[0]; });
  if (same) results = given_[0]->ExecuteOnAll(arguments_, num_results);
  for (size_t rank = 0; rank < results_.size(); ++rank) {
    if (results.ok()) {
      results_[rank] = std::move((*results)[rank]);
    } else {
      results_[rank] = results.status();
    }
    given_[rank] = nullptr;
    arguments_[rank].clear();
  }
  ++runs_;
  changed_.notify_all();
}

absl::StatusOr<PjrtResults> PjrtGroup::Execute(int rank, PjrtExecutable& executable, std::vector<PjrtBuffer> arguments,
                                               int num_results) {
  std::unique_lock<std::mutex> lock(mutex_);
  const int64_t run = runs_;
  given_[rank] = &executable;
  arguments_[rank] = std::move(arguments);
  if (std::find(given_.begin(), given_.end(), nullptr) == given_.end() && !aborted_) ExecuteOnAll(num_results);
  // The next run needs this device, so its results stay until it has fetched them. In slices, so that a process that
  // was stopped for a while does not give up.
  for (std::chrono::seconds waited{0}; run == runs_;) {
    if (aborted_) return absl::CancelledError("another device has failed");
    if (waited >= deadline_) {
      std::vector<size_t> missing;
      for (size_t r = 0; r < given_.size(); ++r) {
        if (given_[r] == nullptr) missing.push_back(r);
      }
      // One that comes later must not run with the arguments of those that have left.
      aborted_ = true;
      changed_.notify_all();
      return absl::DeadlineExceededError(absl::StrCat("replica ", rank, " has waited ", deadline_.count(),
                                                      " s for replica ", absl::StrJoin(missing, ", "),
                                                      "; --all_reduce_timeout_secs sets how long it may"));
    }
    if (changed_.wait_for(lock, std::chrono::seconds(1)) == std::cv_status::timeout) ++waited;
  }
  return std::exchange(results_[rank], absl::UnknownError("fetched"));
}

}  // namespace official::compute
