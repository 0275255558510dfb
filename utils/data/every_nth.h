// Every n-th batch of a source, for workers that train on parts of the same data.
#pragma once

#include "utils/data/batch.h"

namespace official::data {

// Returns batches number `first`, `first` + n, `first` + 2n, ... of `source`, 0 <= first < n: n workers with the same
// source and another `first` each have every batch once. The source still makes all of them; what is in those that are
// not returned does not count, so that it may leave them unwritten (HeldRows with of_batches = n, batch = first). The
// batch's `next` is the position after the n batches that it is one of, so that a run continues there when all workers
// have done theirs; after the last of these batches it is the end of the source.
BatchSourcePtr EveryNth(BatchSourcePtr source, int n, int first);

}  // namespace official::data
