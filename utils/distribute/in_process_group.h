// The communicators of devices that share the memory of one process. Sums are made by whoever waits for them: a device
// that is done with its backward pass adds up what is complete while the others still compute.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "utils/compute/runtime/communicator.h"

namespace official::distribute {

// In which order a sum over the devices is made. The results differ in the last bits, never from run to run.
enum class SumOrder {
  // By halves (TreeSum), as one device adds the parts of its batch: for 4 devices (g0 + g1) + (g2 + g3). TensorFlow's
  // operation of this name adds one device after the other.
  kReductionToOneDevice,
  // Two halves of the devices, each in ascending order, then the two sums; the half that holds device i % n comes first
  // for pack i. TensorFlow forgets the last device if n is odd; here it belongs to the second half.
  kHierarchicalCopy,
};

class InProcessGroup : public compute::CommunicatorGroup {
 public:
  // A device that has waited this long gives up: DeadlineExceeded names the devices that it waits for.
  InProcessGroup(int size, SumOrder order, std::chrono::seconds deadline = std::chrono::minutes(10));
  ~InProcessGroup() override;

  compute::Communicator& communicator(int rank) override;
  void Abort() override;
  absl::Status Reset() override;

 private:
  using Buffer = compute::Communicator::Buffer;
  class Member;

  // Buffers that are summed together.
  struct Pack {
    int order = 0;                             // in its step
    std::vector<std::vector<Buffer>> buffers;  // [rank]; empty until that device has given its own
    int given = 0;                             // devices that have
    int left = 0;                              // devices that no longer need it
    int64_t elements = 0, claimed = 0, summed = 0;
  };

  absl::Status Start(int rank, int64_t number, int order, absl::Span<const Buffer> buffers);
  absl::Status Finish(int rank, int64_t begin, int64_t end);
  Pack& PackNumber(int64_t number);  // made if it is new
  // Elements [begin, end) of the pack's buffers, taken one after the other.
  void Sum(const Pack& pack, int64_t begin, int64_t end) const;
  std::string Missing(const Pack& pack) const;

  const int size_;
  const SumOrder order_;
  const std::chrono::seconds deadline_;
  std::vector<std::unique_ptr<Member>> members_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool aborted_ = false;
  std::deque<std::unique_ptr<Pack>> packs_;          // those that somebody still needs, in the order of their numbers
  std::vector<std::unique_ptr<Pack>> unused_packs_;  // to be used again, so that a step allocates nothing
  int64_t first_number_ = 0;                         // of packs_.front()
};

}  // namespace official::distribute
