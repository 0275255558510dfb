// CheckEvenBatches: refuses a training whose batches cannot be divided among devices that need equal shares.
#pragma once

#include "absl/status/status.h"
#include "utils/run/config.h"
#include "utils/run/input.h"
#include "utils/train/estimator.h"
#include "utils/train/rounds.h"

namespace official::run {

// Returns InvalidArgument, with what would work, if several devices of a PJRT plugin, which compute a step as one
// program, would reach a batch that they cannot divide evenly: the last one of a round, or of an epoch where batches do
// not continue into the next one.
absl::Status CheckEvenBatches(const Config& config, const Input& input, const train::Schedule& schedule,
                              const train::Estimator& estimator);

}  // namespace official::run
