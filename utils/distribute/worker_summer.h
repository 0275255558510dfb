// Sums of an InProcessGroup whose devices are some of the replicas of a job with several workers: each worker adds up
// what its own devices hold, and then one part of every pack for all. The result is, to the bit, that of one process
// with all replicas, SumOrder::kReductionToOneDevice.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "utils/compute/core/batch_parts.h"
#include "utils/distribute/exchange.h"
#include "utils/distribute/in_process_group.h"

namespace official::distribute {

// Returns a summer for devices that all compute in the host's memory. `replicas` has, by worker, the replicas that it
// holds: ranges that follow one another. `exchange` must outlive the summer. A thread of the summer adds and sends
// while the devices compute; a worker for which it waits longer than `deadline` ends the step with DeadlineExceeded.
std::unique_ptr<PackSummer> MakeWorkerSummer(std::vector<compute::Share> replicas, Exchange& exchange,
                                             std::chrono::seconds deadline);

}  // namespace official::distribute
