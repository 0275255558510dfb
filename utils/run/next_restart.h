// The decision to begin a run again after a loss of workers (flags::OnPeerLoss::kRestart).
#pragma once

#include <optional>

#include "utils/distribute/exchange.h"
#include "utils/run/cluster.h"
#include "utils/train/estimator.h"

namespace official::run {

// Returns with which workers this one begins again: those that are there or come late, without those that are lost or
// were asked to stop. Nothing if none is missing and none comes late, if the chief ended the run, or if it was tried
// too often without a step that was trained. `estimator` may be null; `before` is the beginning that ends now.
std::optional<Restart> NextRestart(distribute::Exchange& exchange, const train::Estimator* estimator, bool has_trained,
                                   const std::optional<Restart>& before);

}  // namespace official::run
