// Batches for NeuMF: of the examples that TrainSampler makes, and of the candidates of an evaluation.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "official/recommendation/data/eval_data.h"
#include "official/recommendation/data/train_sampler.h"
#include "utils/data/batch.h"

namespace official::recommendation {

// Of one example: user_id, item_id; label.
data::ElementSpec TrainSpec();

// All batches have `batch_size` examples, at most the sampler's num_examples(): what does not fill a batch at the end
// of an epoch begins the next one, as in the official pipeline, or, at the end of all, is left out. A position's index
// counts the examples of the batches that the epoch has given. Examples are made by the threads that compute, many
// batches at a time.
data::BatchSourcePtr TrainBatches(std::shared_ptr<const TrainSampler> sampler, int64_t batch_size, data::Position start,
                                  int64_t end_epoch);

// One pass over all users, `users_per_batch` at a time: features user_id [U], item_id [U, C] and, if `data` has
// repeats, repeated [U, C].
data::BatchSourcePtr EvalBatches(std::shared_ptr<const EvalData> data, int64_t num_users, int64_t users_per_batch);

}  // namespace official::recommendation
