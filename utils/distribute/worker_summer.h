// Sums of an InProcessGroup whose devices are some of the replicas of a job with several workers.
#pragma once

#include <cstdint>
#include <memory>

#include "utils/distribute/exchange.h"
#include "utils/distribute/in_process_group.h"
#include "utils/distribute/worker_sum.h"

namespace official::distribute {

// What the sums of a worker have cost, those of its first steps left out.
struct SumCosts {
  int64_t steps = 0;
  int64_t bytes_sent = 0;
  double seconds = 0;         // of adding, sending and waiting for other workers, over all packs
  double waited_seconds = 0;  // those of them in which the devices had nothing to do but wait
};

class WorkerSummer : public PackSummer {
 public:
  virtual SumCosts Costs() const = 0;
};

// Returns a summer for devices that all compute in the host's memory. A thread of it adds and sends, as `sum` does,
// while the devices compute; an error of that ends the step. `exchange` must outlive the summer.
std::unique_ptr<WorkerSummer> MakeWorkerSummer(std::unique_ptr<WorkerSum> sum, Exchange& exchange);

}  // namespace official::distribute
