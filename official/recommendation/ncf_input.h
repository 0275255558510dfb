// Batches for NeuMF: the examples that TrainSampler makes, and the candidates of an evaluation.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "official/recommendation/data/eval_data.h"
#include "official/recommendation/data/train_sampler.h"
#include "utils/data/batch.h"

namespace official::recommendation {

// The spec of one example: features user_id, item_id; one label.
data::ElementSpec TrainSpec();

// All batches have `batch_size` examples, at most the sampler's num_examples(): the examples that do not fill a batch
// at the end of an epoch begin the next one, as in the official pipeline, or, at the end of the last, are left out. A
// position's index is the number of examples in the epoch's batches so far. Examples are made by the threads that
// compute, many batches at a time; those outside of `rows` are not made.
data::BatchSourcePtr TrainBatches(std::shared_ptr<const TrainSampler> sampler, int64_t batch_size, data::Position start,
                                  int64_t end_epoch, const data::HeldRows& rows = {});

// Returns one pass over all users, `users_per_batch` at a time: features user_id [U], item_id [U, C] and, if `data` has
// repeats, repeated [U, C].
data::BatchSourcePtr EvalBatches(std::shared_ptr<const EvalData> data, int64_t num_users, int64_t users_per_batch);

}  // namespace official::recommendation
