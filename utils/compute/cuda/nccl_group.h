// The communicators of the GPUs of a process, alone or together with those of others: NCCL sums in place, on each
// device's own stream for sums, separate from that of its kernels. Events join the two, so that all of it can be
// recorded into a CUDA graph.
#pragma once

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "utils/compute/kernel/communicator.h"
#include "utils/compute/kernel/device.h"

namespace official::compute {

class NcclGroup : public CommunicatorGroup {
 public:
  // See AllReduceAlgorithm in device.h. The order of the sums is NCCL's choice. After an Abort the group cannot be used
  // again. A wait for a device, or that of the destructor, that NCCL then does not end within the deadline ends the
  // process (Device::EndProcess), with the cause.
  static absl::StatusOr<std::unique_ptr<CommunicatorGroup>> Make(absl::Span<Device* const> devices,
                                                                 std::chrono::seconds deadline,
                                                                 const std::optional<WorldRanks>& world);
  // Returns "NCCL 2.28.9", or nothing if no group has been made.
  static std::string LoadedVersion();
  ~NcclGroup() override;

  Communicator& communicator(int rank) override;
  void Abort(const absl::Status& cause) override;
  absl::Status Reset() override;

 private:
  class Member;
  struct Progress;

  NcclGroup(std::chrono::seconds deadline, const std::optional<WorldRanks>& world);
  absl::Status Init(absl::Span<Device* const> devices);
  // The name by which all communicators find each other, as bytes.
  absl::StatusOr<std::string> SharedId();
  int WorldRank(int rank) const { return world_ ? world_->first + rank : rank; }
  absl::Status CheckOtherProcesses() const { return world_ ? world_->check() : absl::OkStatus(); }
  // Returns the cause of an error of NCCL: that another process has failed or is lost, if this becomes known within a
  // second, else the error itself. OK stays OK.
  absl::Status CauseOf(const absl::Status& nccl_error) const;
  // Ends the process after an Abort, or does nothing if nobody has said how.
  void EndProcess() const;

  const std::chrono::seconds deadline_;
  const std::optional<WorldRanks> world_;
  Progress* progress_ = nullptr;  // indexed by rank
  std::vector<std::unique_ptr<Member>> members_;
  std::mutex abort_mutex_;
  absl::Status cause_;  // of the Abort; not changed after it
  std::atomic<bool> aborted_ = false;
  std::thread aborter_;
  std::promise<void> aborts_ended_;
};

}  // namespace official::compute
