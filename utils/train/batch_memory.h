// The memory that a batch takes, before it is taken.
#pragma once

#include "absl/status/status.h"
#include "utils/train/checkpointed_model.h"

namespace official::train {

// Returns InvalidArgument, with the largest batch that would fit, if training with `batch_size` needs more memory than
// the host has. Allocates nothing of that size.
absl::Status CheckBatchFits(CheckpointedModel& checkpointed, const data::ElementSpec& spec, int64_t batch_size);

}  // namespace official::train
