#include "utils/compute/cuda/nccl_group.h"

#include <nccl.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "utils/compute/core/status.h"
#include "utils/compute/cuda/cuda_device.h"
#include "utils/compute/cuda/cuda_status.h"
#include "utils/compute/cuda/launch.h"
#include "utils/compute/cuda/nccl_functions.h"
#include "utils/compute/cuda/stream.h"

namespace official::compute {
namespace {

using Clock = std::chrono::steady_clock;

// Names the call in the error.
#define CALL(expression) RETURN_IF_ERROR(CudaStatus((expression), #expression))

// NCCL's functions, as members of their names.
struct NcclApi {
#define OFFICIAL_MEMBER(function) decltype(&::function) function;
  OFFICIAL_NCCL_FUNCTIONS(OFFICIAL_MEMBER)
#undef OFFICIAL_MEMBER
};

std::atomic<int> loaded_version = 0;  // NCCL's number: 22809 is 2.28.9; 0: it is not loaded

absl::StatusOr<NcclApi> LoadNccl() {
  ASSIGN_OR_RETURN(const std::vector<void*> addresses, LoadNcclFunctions());
  auto address = addresses.begin();
#define OFFICIAL_ADDRESS(function) reinterpret_cast<decltype(&::function)>(*address++),
  const NcclApi api = {OFFICIAL_NCCL_FUNCTIONS(OFFICIAL_ADDRESS)};
#undef OFFICIAL_ADDRESS
  int version = 0;
  api.ncclGetVersion(&version);
  loaded_version = version;
  if (version >= NCCL_VERSION(2, 14, 0) && version / 10000 == NCCL_MAJOR) return api;
  return absl::FailedPreconditionError(absl::StrFormat("%s cannot be used: it needs to be %d.14 or later, below %d.0",
                                                       NcclGroup::LoadedVersion(), NCCL_MAJOR, NCCL_MAJOR + 1));
}

const absl::StatusOr<NcclApi>& LoadedNccl() {
  static const auto* const api = new absl::StatusOr<NcclApi>(LoadNccl());
  return *api;
}

// To be called only where LoadedNccl() is OK: where there is a group.
const NcclApi& Nccl() { return *LoadedNccl(); }

// A call of a communicator that does not block may go on behind it: ncclInProgress is no error.
absl::Status NcclStatus(ncclResult_t error, ncclComm_t comm, absl::string_view call) {
  if (error == ncclSuccess || error == ncclInProgress) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(call, ": ", Nccl().ncclGetErrorString(error), " (",
                                          Nccl().ncclGetLastError(comm),
                                          "); NCCL_DEBUG=INFO in the environment shows more"));
}

absl::Status DeviceHasFailed() { return absl::CancelledError("another device has failed"); }

__global__ void CountUp(volatile uint64_t* counter) { *counter = *counter + 1; }

}  // namespace

// How far a device has come, in memory of the host that its kernels write: while a recorded step runs, the host knows
// nothing else.
struct NcclGroup::Progress {
  volatile uint64_t given;   // steps whose packs are all given
  volatile uint64_t summed;  // steps whose sums are all there
};

class NcclGroup::Member : public Communicator {
 public:
  Member(NcclGroup& group, CudaDevice& device, int rank) : group_(group), device_(device), rank_(rank) {}
  ~Member() override {
    device_.MakeCurrent();
    if (stream_ != nullptr) cudaStreamSynchronize(stream_.get());
    if (comm_ != nullptr) Nccl().ncclCommDestroy(comm_);
    given_.reset();
    summed_.reset();
    stream_.reset();
  }

  // Begins to connect; to be called between ncclGroupStart and ncclGroupEnd for all members.
  absl::Status Connect(const ncclUniqueId& id, int size);
  // Returns when the last call of the communicator has done its work.
  absl::Status WaitForCall(Clock::time_point give_up, absl::string_view call);
  // Ends what runs on the device, too.
  void Abort();
  const Device& device() const { return device_; }

  absl::Status Start(absl::Span<const Buffer> pack) override;
  absl::Status Finish() override;
  absl::Status CheckWait(bool begins) override;
  void DeviceFailed(const absl::Status& error) override { group_.Abort(error); }
  bool can_be_recorded() const override { return true; }

 private:
  // Returns true if the communicator's last call has done its work, or NCCL's error if that or the work on the device
  // has failed.
  absl::StatusOr<bool> IsDone(absl::string_view call);
  // Gives NCCL the sums of a pack.
  absl::Status StartSums(absl::Span<const Buffer> pack);

  NcclGroup& group_;
  CudaDevice& device_;
  const int rank_;
  std::mutex mutex_;  // of comm_, which another thread may abort
  ncclComm_t comm_ = nullptr;
  CudaStream stream_;
  CudaEvent given_;   // on the device's stream: what is summed next is final
  CudaEvent summed_;  // on stream_: all sums are made
  // Of the device's thread: how long it has seen the device wait for sums, and, after an Abort, not come to an end.
  Clock::time_point last_check_ = Clock::now();
  Clock::duration waited_{0}, waited_for_end_{0};
  uint64_t waited_for_ = 0;  // the step
};

absl::Status NcclGroup::Member::Connect(const ncclUniqueId& id, int size) {
  device_.MakeCurrent();
  ASSIGN_OR_RETURN(stream_, MakeUrgentStream());
  ASSIGN_OR_RETURN(given_, MakeEvent());
  ASSIGN_OR_RETURN(summed_, MakeEvent());
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return NcclStatus(Nccl().ncclCommInitRankConfig(&comm_, size, id, group_.WorldRank(rank_), &config), nullptr,
                    "ncclCommInitRankConfig");
}

absl::StatusOr<bool> NcclGroup::Member::IsDone(absl::string_view call) {
  ncclResult_t state = ncclSuccess;
  RETURN_IF_ERROR(NcclStatus(Nccl().ncclCommGetAsyncError(comm_, &state), comm_, "ncclCommGetAsyncError"));
  RETURN_IF_ERROR(NcclStatus(state, comm_, call));
  return state != ncclInProgress;
}

absl::Status NcclGroup::Member::WaitForCall(Clock::time_point give_up, absl::string_view call) {
  const Clock::time_point start = Clock::now();
  for (;;) {
    const absl::StatusOr<bool> done = IsDone(call);
    if (!done.ok()) return group_.CauseOf(done.status());
    if (*done) return absl::OkStatus();
    if (group_.aborted_) return DeviceHasFailed();
    const Clock::time_point now = Clock::now();
    if (now > give_up) {
      return absl::DeadlineExceededError(absl::StrCat(device_.name(), " has waited ", group_.deadline_.count(),
                                                      " s for the other GPUs in ", call,
                                                      "; --all_reduce_timeout_secs sets how long it may, "
                                                      "NCCL_DEBUG=INFO in the environment shows where it stands"));
    }
    if (now - start < std::chrono::milliseconds(1)) {
      std::this_thread::yield();
    } else {
      RETURN_IF_ERROR(group_.CheckOtherProcesses());
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }
}

void NcclGroup::Member::Abort() {
  ncclComm_t comm = nullptr;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    comm = std::exchange(comm_, nullptr);
  }
  if (comm != nullptr) Nccl().ncclCommAbort(comm);
}

absl::Status NcclGroup::Member::Start(absl::Span<const Buffer> pack) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (group_.aborted_ || comm_ == nullptr) return DeviceHasFailed();
  RETURN_IF_ERROR(WaitFor(stream_.get(), device_.stream(), given_));
  RETURN_IF_ERROR(group_.CauseOf(StartSums(pack)));
  return WaitForCall(Clock::now() + group_.deadline_, "ncclAllReduce");
}

absl::Status NcclGroup::Member::StartSums(absl::Span<const Buffer> pack) {
  RETURN_IF_ERROR(NcclStatus(Nccl().ncclGroupStart(), comm_, "ncclGroupStart"));
  absl::Status status;
  for (const Buffer& b : pack) {
    if (b.elements == 0 || !status.ok()) continue;
    status.Update(
        NcclStatus(Nccl().ncclAllReduce(b.data, b.data, b.elements, ncclFloat32, ncclSum, comm_, stream_.get()), comm_,
                   "ncclAllReduce"));
  }
  const ncclResult_t launched = Nccl().ncclGroupEnd();
  RETURN_IF_ERROR(status);
  return NcclStatus(launched, comm_, "ncclGroupEnd");
}

absl::Status NcclGroup::Member::Finish() {
  if (group_.aborted_) return DeviceHasFailed();
  Progress& progress = group_.progress_[rank_];
  Launch(CountUp, 1, 1, 0, device_.stream(), &progress.given);
  RETURN_IF_ERROR(LaunchStatus("CountUp"));
  RETURN_IF_ERROR(WaitFor(device_.stream(), stream_.get(), summed_));
  Launch(CountUp, 1, 1, 0, device_.stream(), &progress.summed);
  return LaunchStatus("CountUp");
}

absl::Status NcclGroup::Member::CheckWait(bool begins) {
  const Clock::time_point now = Clock::now();
  // In slices, so that a process that was stopped for a while does not give up.
  const Clock::duration slice =
      std::min<Clock::duration>(now - std::exchange(last_check_, now), std::chrono::seconds(1));
  if (group_.aborted_) {
    // What still runs ends by itself, unless NCCL or the GPU hangs. Time in which nobody waited does not count.
    waited_for_end_ = begins ? Clock::duration(0) : waited_for_end_ + slice;
    if (waited_for_end_ >= group_.deadline_) group_.EndProcess();
    return absl::OkStatus();
  }
  absl::Status nccl_error;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (comm_ == nullptr) return absl::OkStatus();
    nccl_error.Update(IsDone("ncclAllReduce").status());
  }
  const absl::Status status = nccl_error.ok() ? group_.CheckOtherProcesses() : group_.CauseOf(nccl_error);
  if (!status.ok()) {
    group_.Abort(status);  // or the device would wait on for what does not come any more
    return status;
  }
  const Progress* const all = group_.progress_;
  const uint64_t given = all[rank_].given;
  const bool waits = all[rank_].summed < given;
  waited_ = waits && std::exchange(waited_for_, given) == given ? waited_ + slice : Clock::duration(0);
  if (waited_ < group_.deadline_) return absl::OkStatus();
  std::vector<int> missing;
  for (size_t r = 0; r < group_.members_.size(); ++r) {
    if (all[r].given < given) missing.push_back(group_.WorldRank(static_cast<int>(r)));
  }
  const std::string what = missing.empty()
                               ? "NCCL to add gradients; NCCL_DEBUG=INFO in the environment shows where it stands"
                               : absl::StrCat("the gradients of replica ", absl::StrJoin(missing, ", "));
  const absl::Status late = absl::DeadlineExceededError(
      absl::StrCat("replica ", group_.WorldRank(rank_), " has waited ", group_.deadline_.count(), " s for ", what,
                   "; --all_reduce_timeout_secs sets how long it may"));
  group_.Abort(late);  // or nobody could wait for the devices any more, not even to end
  return late;
}

NcclGroup::NcclGroup(std::chrono::seconds deadline, const std::optional<WorldRanks>& world)
    : deadline_(deadline), world_(world) {}

NcclGroup::~NcclGroup() {
  if (aborter_.joinable()) {
    const std::future<void> ended = aborts_ended_.get_future();
    for (std::chrono::seconds waited{0}; ended.wait_for(std::chrono::seconds(1)) == std::future_status::timeout;) {
      if (++waited == deadline_) EndProcess();
    }
    aborter_.join();
  }
  members_.clear();
  cudaFreeHost(progress_);
}

absl::StatusOr<std::unique_ptr<CommunicatorGroup>> NcclGroup::Make(absl::Span<Device* const> devices,
                                                                   std::chrono::seconds deadline,
                                                                   const std::optional<WorldRanks>& world) {
  RETURN_IF_ERROR(LoadedNccl().status());
  std::unique_ptr<NcclGroup> group(new NcclGroup(deadline, world));
  const absl::Status status = group->Init(devices);
  devices[0]->MakeCurrent();
  if (status.ok()) return group;
  const absl::Status error(status.code(), absl::StrCat("the GPUs cannot be connected: ", status.message()));
  group->Abort(error);
  return error;
}

// NCCL sees the connections of a process that dies break before the exchange does, or just after.
absl::Status NcclGroup::CauseOf(const absl::Status& nccl_error) const {
  if (nccl_error.ok() || !world_) return nccl_error;
  for (int i = 0; i < 100; ++i) {
    RETURN_IF_ERROR(CheckOtherProcesses());
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return nccl_error;
}

absl::StatusOr<std::string> NcclGroup::SharedId() {
  const auto new_id = []() -> absl::StatusOr<std::string> {
    ncclUniqueId id;
    RETURN_IF_ERROR(NcclStatus(Nccl().ncclGetUniqueId(&id), nullptr, "ncclGetUniqueId"));
    return std::string(id.internal, sizeof(id.internal));
  };
  if (!world_) return new_id();
  return world_->from_first(world_->first == 0 ? new_id() : "");
}

absl::Status NcclGroup::Init(absl::Span<Device* const> devices) {
  const int size = static_cast<int>(devices.size());
  devices[0]->MakeCurrent();
  CALL(cudaHostAlloc(&progress_, size * sizeof(Progress), cudaHostAllocPortable));
  std::fill_n(progress_, size, Progress{0, 0});
  for (int rank = 0; rank < size; ++rank) {
    members_.push_back(std::make_unique<Member>(*this, static_cast<CudaDevice&>(*devices[rank]), rank));
  }
  ASSIGN_OR_RETURN(const std::string shared, SharedId());
  ncclUniqueId id;
  if (shared.size() != sizeof(id.internal)) {
    return absl::InternalError(absl::StrCat("the first process has sent an id of ", shared.size(), " bytes, not ",
                                            sizeof(id.internal), "; do all run the same program?"));
  }
  std::memcpy(id.internal, shared.data(), shared.size());
  const int world_size = world_ ? world_->count : size;
  RETURN_IF_ERROR(NcclStatus(Nccl().ncclGroupStart(), nullptr, "ncclGroupStart"));
  absl::Status status;
  for (int rank = 0; rank < size && status.ok(); ++rank) status.Update(members_[rank]->Connect(id, world_size));
  const ncclResult_t begun = Nccl().ncclGroupEnd();
  RETURN_IF_ERROR(status);
  RETURN_IF_ERROR(NcclStatus(begun, nullptr, "ncclGroupEnd"));
  const Clock::time_point give_up = Clock::now() + deadline_;
  for (const auto& member : members_) RETURN_IF_ERROR(member->WaitForCall(give_up, "ncclCommInitRankConfig"));
  return absl::OkStatus();
}

std::string NcclGroup::LoadedVersion() {
  const int version = loaded_version;
  if (version == 0) return "";
  return absl::StrFormat("NCCL %d.%d.%d", version / 10000, version / 100 % 100, version % 100);
}

Communicator& NcclGroup::communicator(int rank) { return *members_[rank]; }

// ncclCommAbort ends the devices' work at once, but does not return before the recordings that hold the communicators
// are gone, which may be those of the thread that calls this.
void NcclGroup::Abort(const absl::Status& cause) {
  const std::lock_guard<std::mutex> lock(abort_mutex_);
  if (aborted_) return;
  cause_ = cause;
  aborted_ = true;
  aborter_ = std::thread([this] {
    for (const auto& member : members_) member->Abort();
    aborts_ended_.set_value();
  });
}

void NcclGroup::EndProcess() const {
  members_[0]->device().EndProcess(absl::Status(
      cause_.code(), absl::StrCat(cause_.message(), "; the process ends here, since NCCL has not ended its work for ",
                                  deadline_.count(), " s after that")));
}

// Recorded programs hold the communicators that were aborted.
absl::Status NcclGroup::Reset() {
  return absl::FailedPreconditionError("the GPUs' connections were cut when one of them failed; start again");
}

}  // namespace official::compute
