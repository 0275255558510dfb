// The samples of NCF's evaluations: what the network recommends to some users.
#pragma once

#include "absl/status/statusor.h"
#include "official/recommendation/data/item_names.h"
#include "official/recommendation/data/ratings.h"
#include "utils/train/estimator.h"

namespace official::recommendation {

// Returns, for the first users of the ratings, at most `max_users`: the user's number in the ratings file; the held-out
// item; its place, from 1 on, among all items that the user has not rated otherwise, by their scores, where it comes
// after its equals; and the first 10 of these items. Items have their names or, without one, their numbers. The
// estimator has one replica. Errors: those of Estimator::Predict.
absl::StatusOr<train::EvalSamples> SampleUsers(train::Estimator& estimator, const Ratings& ratings,
                                               const ItemNames& names, int max_users);

}  // namespace official::recommendation
