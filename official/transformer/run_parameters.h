// The Transformer's part of the run record.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "official/transformer/transformer_run.h"
#include "utils/logs/run_info.h"

namespace official::transformer {

// The pairs of WMT, after those that are too long have been left out.
inline constexpr int64_t kTrainPairs = 4572160, kEvalPairs = 3000;

// Returns what upstream records of a run, all that its parameters hold while it runs, but for batch_size, which the
// record has already. What it knows and we do not has the value that it has in a run without TPUs.
std::vector<std::pair<std::string, logs::RunParameter>> RunParametersOf(const TransformerConfig& config);

}  // namespace official::transformer
