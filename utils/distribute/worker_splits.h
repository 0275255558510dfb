// For tests: all ways in which workers can hold the replicas of a job.
#pragma once

#include <vector>

#include "utils/compute/core/batch_parts.h"

namespace official::distribute {

// Returns every division of replicas [0, num_replicas) among at most so many workers, each of which holds at least one:
// by worker, ranges that follow one another.
std::vector<std::vector<compute::Share>> AllSplits(int num_replicas, int max_workers);

}  // namespace official::distribute
