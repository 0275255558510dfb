// Synthetic data for NeuMF (--use_synthetic_data): one batch of random examples, repeated, to measure the speed without
// reading or sampling anything. What the network learns of it means nothing.
#pragma once

#include <cstdint>

#include "official/recommendation/data/eval_data.h"
#include "official/recommendation/data/generated_ratings.h"
#include "official/recommendation/data/ratings.h"
#include "utils/data/batch.h"

namespace official::recommendation {

// Returns users and items of a data set's numbers, named 1, 2, ..., who have rated nothing.
Ratings SyntheticRatings(const GeneratorOptions& size);

// Returns batches of the same examples, of which one in 1 + num_neg has label 1; an epoch has `num_examples`.
data::BatchSourcePtr SyntheticTrainBatches(const GeneratorOptions& size, int num_neg, int64_t num_examples,
                                           int64_t batch_size, data::Position start, int64_t end_epoch);

// Returns random candidates of the first `num_users` users.
EvalData SyntheticEvalData(const GeneratorOptions& size, int32_t num_users, int num_negatives);

}  // namespace official::recommendation
