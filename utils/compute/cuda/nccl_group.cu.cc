#include "utils/compute/cuda/nccl_group.h"

#include <nccl.h>

#include <chrono>
#include <mutex>
#include <thread>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/compute/cuda/cuda_device.h"
#include "utils/compute/cuda/cuda_status.h"

namespace official::compute {
namespace {

using Clock = std::chrono::steady_clock;

// Names the call in the error.
#define CALL(expression) RETURN_IF_ERROR(CudaStatus((expression), #expression))

constexpr std::chrono::minutes kDeadline{10};

// A call of a communicator that does not block may go on behind it: ncclInProgress is no error.
absl::Status NcclStatus(ncclResult_t error, ncclComm_t comm, absl::string_view call) {
  if (error == ncclSuccess || error == ncclInProgress) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(call, ": ", ncclGetErrorString(error), " (", ncclGetLastError(comm),
                                          "); NCCL_DEBUG=INFO in the environment shows more"));
}

}  // namespace

class NcclGroup::Member : public Communicator {
 public:
  Member(NcclGroup& group, CudaDevice& device) : group_(group), device_(device) {}
  ~Member() override {
    device_.MakeCurrent();
    if (stream_ != nullptr) cudaStreamSynchronize(stream_);
    if (comm_ != nullptr) ncclCommDestroy(comm_);
    for (const cudaEvent_t event : {given_, summed_}) {
      if (event != nullptr) cudaEventDestroy(event);
    }
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }

  // Begins to connect; to be called between ncclGroupStart and ncclGroupEnd for all members.
  absl::Status Connect(const ncclUniqueId& id, int rank, int size);
  // Returns when the last call of the communicator has done its work.
  absl::Status Wait(Clock::time_point give_up, absl::string_view call);
  // Ends what runs on the device, too.
  void Abort();

  absl::Status Start(absl::Span<const Buffer> pack) override;
  absl::Status Finish() override;

 private:
  NcclGroup& group_;
  CudaDevice& device_;
  std::mutex mutex_;  // of comm_, which another thread may abort
  ncclComm_t comm_ = nullptr;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t given_ = nullptr;   // on the device's stream: what is summed next is final
  cudaEvent_t summed_ = nullptr;  // on stream_: all sums are made
};

absl::Status NcclGroup::Member::Connect(const ncclUniqueId& id, int rank, int size) {
  device_.MakeCurrent();
  // Sums take precedence over the kernels that they run beside, or those would keep them from the multiprocessors.
  int lowest = 0, highest = 0;
  CALL(cudaDeviceGetStreamPriorityRange(&lowest, &highest));
  CALL(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, highest));
  CALL(cudaEventCreateWithFlags(&given_, cudaEventDisableTiming));
  CALL(cudaEventCreateWithFlags(&summed_, cudaEventDisableTiming));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return NcclStatus(ncclCommInitRankConfig(&comm_, size, id, rank, &config), nullptr, "ncclCommInitRankConfig");
}

absl::Status NcclGroup::Member::Wait(Clock::time_point give_up, absl::string_view call) {
  for (;;) {
    ncclResult_t state = ncclSuccess;
    RETURN_IF_ERROR(NcclStatus(ncclCommGetAsyncError(comm_, &state), comm_, "ncclCommGetAsyncError"));
    if (state != ncclInProgress) return NcclStatus(state, comm_, call);
    if (group_.aborted_) return absl::CancelledError("another device has failed");
    if (Clock::now() > give_up) {
      return absl::DeadlineExceededError(absl::StrCat(device_.name(), " has waited ", kDeadline.count(),
                                                      " min for the other GPUs in ", call,
                                                      "; NCCL_DEBUG=INFO in the environment shows where it stands"));
    }
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

void NcclGroup::Member::Abort() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (comm_ != nullptr) ncclCommAbort(comm_);
  comm_ = nullptr;
}

absl::Status NcclGroup::Member::Start(absl::Span<const Buffer> pack) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (group_.aborted_ || comm_ == nullptr) return absl::CancelledError("another device has failed");
  CALL(cudaEventRecord(given_, device_.stream()));
  CALL(cudaStreamWaitEvent(stream_, given_, 0));
  RETURN_IF_ERROR(NcclStatus(ncclGroupStart(), comm_, "ncclGroupStart"));
  absl::Status status;
  for (const Buffer& b : pack) {
    if (b.elements == 0 || !status.ok()) continue;
    status = NcclStatus(ncclAllReduce(b.data, b.data, b.elements, ncclFloat32, ncclSum, comm_, stream_), comm_,
                        "ncclAllReduce");
  }
  const ncclResult_t launched = ncclGroupEnd();
  RETURN_IF_ERROR(status);
  RETURN_IF_ERROR(NcclStatus(launched, comm_, "ncclGroupEnd"));
  return Wait(Clock::now() + kDeadline, "ncclAllReduce");
}

absl::Status NcclGroup::Member::Finish() {
  if (group_.aborted_) return absl::CancelledError("another device has failed");
  CALL(cudaEventRecord(summed_, stream_));
  CALL(cudaStreamWaitEvent(device_.stream(), summed_, 0));
  return absl::OkStatus();
}

NcclGroup::NcclGroup() = default;
NcclGroup::~NcclGroup() = default;

absl::StatusOr<std::unique_ptr<CommunicatorGroup>> NcclGroup::Make(absl::Span<Device* const> devices) {
  std::unique_ptr<NcclGroup> group(new NcclGroup);
  const absl::Status status = group->Init(devices);
  devices[0]->MakeCurrent();
  if (status.ok()) return group;
  group->Abort();
  return absl::Status(status.code(), absl::StrCat("the GPUs cannot be connected: ", status.message()));
}

absl::Status NcclGroup::Init(absl::Span<Device* const> devices) {
  for (Device* device : devices) {
    members_.push_back(std::make_unique<Member>(*this, static_cast<CudaDevice&>(*device)));
  }
  ncclUniqueId id;
  RETURN_IF_ERROR(NcclStatus(ncclGetUniqueId(&id), nullptr, "ncclGetUniqueId"));
  RETURN_IF_ERROR(NcclStatus(ncclGroupStart(), nullptr, "ncclGroupStart"));
  absl::Status status;
  const int size = static_cast<int>(devices.size());
  for (int rank = 0; rank < size && status.ok(); ++rank) status = members_[rank]->Connect(id, rank, size);
  const ncclResult_t begun = ncclGroupEnd();
  RETURN_IF_ERROR(status);
  RETURN_IF_ERROR(NcclStatus(begun, nullptr, "ncclGroupEnd"));
  const Clock::time_point give_up = Clock::now() + kDeadline;
  for (const auto& member : members_) RETURN_IF_ERROR(member->Wait(give_up, "ncclCommInitRankConfig"));
  return absl::OkStatus();
}

Communicator& NcclGroup::communicator(int rank) { return *members_[rank]; }

void NcclGroup::Abort() {
  aborted_ = true;
  for (const auto& member : members_) member->Abort();
}

// Recorded programs hold the communicators that were aborted.
absl::Status NcclGroup::Reset() {
  return absl::FailedPreconditionError("the GPUs' connections were cut when one of them failed; start again");
}

}  // namespace official::compute
