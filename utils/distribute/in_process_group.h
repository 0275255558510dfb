// The communicators of the devices of one process. Sums are made, or given to the devices, by the threads that wait for
// them: that of a device that is done with its backward pass adds up the complete packs while the others still compute.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "utils/compute/kernel/communicator.h"
#include "utils/distribute/sum_plan.h"

namespace official::distribute {

// Makes the sums of a group. It gets a pack as its number in the step and the buffers of each device, [rank].
class PackSummer {
 public:
  using Buffer = compute::Communicator::Buffer;
  virtual ~PackSummer() = default;

  // Called when device `rank` has given the pack, on its thread.
  virtual absl::Status Give(int rank, int pack) { return absl::OkStatus(); }
  // Called when all devices have given a pack with elements, on the thread of the last. The buffers stay until it is
  // summed.
  virtual void Begin(int pack, absl::Span<const std::vector<Buffer>> buffers) {}
  // Returns the number of elements for one call of Sum, at least 1; `left` elements are not taken yet.
  virtual int64_t Share(int64_t left) const = 0;
  // Sums elements [begin, end) of the buffers, taken one after the other. Called on any device's thread.
  virtual absl::Status Sum(int pack, absl::Span<const std::vector<Buffer>> buffers, int64_t begin, int64_t end) = 0;
  // Called when the sums of all packs of the step are made, or ordered, on the thread of device `rank`, which then
  // continues.
  virtual absl::Status Take(int rank) { return absl::OkStatus(); }
  // A device has failed: the sums that others wait for elsewhere will not come.
  virtual void Abort() {}
  // After Abort: see compute::CommunicatorGroup.
  virtual absl::Status Reset() { return absl::OkStatus(); }
};

// Returns a summer for devices that all compute in the host's memory.
std::unique_ptr<PackSummer> MakeHostSummer(int num_devices, SumOrder order);

class InProcessGroup : public compute::CommunicatorGroup {
 public:
  // A device that has waited for `deadline` gives up: DeadlineExceeded names the devices that it waits for.
  InProcessGroup(int size, std::unique_ptr<PackSummer> summer,
                 std::chrono::seconds deadline = std::chrono::minutes(10));
  ~InProcessGroup() override;

  compute::Communicator& communicator(int rank) override;
  void Abort(const absl::Status& cause) override;
  absl::Status Reset() override;

 private:
  using Buffer = compute::Communicator::Buffer;
  class Member;

  // Buffers that are summed together.
  struct Pack {
    int number = 0;                            // number in its step
    std::vector<std::vector<Buffer>> buffers;  // [rank]; empty until that device has given its own
    int given = 0;                             // number of devices that have given their own
    int left = 0;                              // number of devices that no longer need it
    int64_t elements = 0, claimed = 0, summed = 0;
  };

  absl::Status Start(int rank, int64_t number, int in_step, absl::Span<const Buffer> buffers);
  absl::Status Finish(int rank, int64_t begin, int64_t end);
  absl::StatusOr<bool> AllTrue(int rank, bool value);
  // Waits for a change; DeadlineExceeded, once `waited` is the deadline, names `what()`, which the replica waits for.
  template <typename F>
  absl::Status Wait(std::unique_lock<std::mutex>& lock, int rank, std::chrono::seconds& waited, F what);
  Pack& PackNumber(int64_t number);  // makes it if it is new
  std::string Missing(const Pack& pack) const;

  const int size_;
  const std::unique_ptr<PackSummer> summer_;
  const std::chrono::seconds deadline_;
  std::vector<std::unique_ptr<Member>> members_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool aborted_ = false;
  std::deque<std::unique_ptr<Pack>> packs_;          // the packs still needed, in the order of their numbers
  std::vector<std::unique_ptr<Pack>> unused_packs_;  // for reuse, so that a step allocates nothing
  int64_t first_number_ = 0;                         // number of packs_.front()
  // The state of AllTrue.
  std::vector<bool> answered_;  // [rank]
  bool answer_ = true;
  bool last_answer_ = true;
  int64_t questions_ = 0;  // number of questions that all have answered
};

}  // namespace official::distribute
