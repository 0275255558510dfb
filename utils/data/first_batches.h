// The first batches of a source, again in each epoch.
#pragma once

#include "utils/data/batch.h"

namespace official::data {

struct FirstBatchesOptions {
  int64_t num_batches = 1;
  // As in BatchOptions. `start` is a Batch::next of these batches; of other positions, the next batch is the first.
  Position start = {};
  int64_t end_epoch = 1;
  std::optional<int64_t> num_examples = std::nullopt;  // of these batches, where that is known before they are read
};

// Returns the first batches of `source`, which begins at {0, 0}, in each of the epochs [start.epoch, end_epoch). Each
// is read when it is first asked for, and kept in memory. `source` may have fewer. Next() returns DataLoss if it has
// none, and errors of `source`, which come in place of the batch before the one that cannot be read.
BatchSourcePtr FirstBatches(BatchSourcePtr source, const FirstBatchesOptions& options);

}  // namespace official::data
