// The sum of a pack over several workers: who adds what, and what they send each other for it.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "utils/compute/core/batch_parts.h"
#include "utils/compute/kernel/communicator.h"
#include "utils/distribute/exchange.h"

namespace official::distribute {

enum class WorkerSumOrder {
  kOrdered,  // that of one process: the result does not depend, to the bit, on the division among workers
  kRing,     // each worker sends to the next one only: for very many workers. The last bits depend on their number
};

// The ways in which the workers of a job can sum gradients (--collective_communication).
enum class CollectiveCommunication {
  kAuto,     // NCCL on devices that have it, else ordered
  kOrdered,  // WorkerSumOrder::kOrdered, in the host's memory
  kRing,     // WorkerSumOrder::kRing
  kNccl,     // the devices' own way to sum, between those of all workers
};

class WorkerSum {
 public:
  using Buffer = compute::Communicator::Buffer;
  virtual ~WorkerSum() = default;

  // Replaces what the buffers of each local device hold, [local device], by the sum over all replicas. All workers call
  // it for the same packs in the same order. Errors: those of the exchange.
  virtual absl::Status Sum(absl::Span<const std::vector<Buffer>> buffers) = 0;
  // Returns the number of bytes that this worker has sent for its sums so far, without the transport's own.
  virtual int64_t bytes_sent() const = 0;
  // Returns how many seconds this worker has waited so far for what others send.
  virtual double seconds_waited() const = 0;
};

// Returns a sum in the host's memory. `replicas` has, by worker, the replicas that it holds: ranges that follow one
// another. `exchange` must outlive the sum; a worker for which it waits longer than `deadline` is an error.
std::unique_ptr<WorkerSum> MakeWorkerSum(WorkerSumOrder order, std::vector<compute::Share> replicas, Exchange& exchange,
                                         std::chrono::seconds deadline);

}  // namespace official::distribute
