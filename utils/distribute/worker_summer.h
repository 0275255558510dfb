// Sums of an InProcessGroup whose devices are some of the replicas of a job with several workers.
#pragma once

#include <memory>

#include "utils/distribute/exchange.h"
#include "utils/distribute/in_process_group.h"
#include "utils/distribute/worker_sum.h"

namespace official::distribute {

// Returns a summer for devices that all compute in the host's memory. A thread of it adds and sends, as `sum` does,
// while the devices compute; an error of that ends the step. `exchange` must outlive the summer.
std::unique_ptr<PackSummer> MakeWorkerSummer(std::unique_ptr<WorkerSum> sum, Exchange& exchange);

}  // namespace official::distribute
