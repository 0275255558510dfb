// Prediction, by a trained network, of the items that users will choose.
#pragma once

#include <cstdint>
#include <ostream>
#include <vector>

#include "absl/status/status.h"
#include "official/recommendation/data/item_names.h"
#include "official/recommendation/data/ratings.h"
#include "utils/train/estimator.h"

namespace official::recommendation {

struct PredictOptions {
  std::vector<int32_t> users;  // the users' numbers in the ratings file
  int top_k = 10;
  ItemNames item_names = {};  // printed next to the items; those without a name are printed by number only
  bool json = false;
};

// Prints the top_k items with the highest scores for each user, of those that the user has not rated; equal ones in the
// order in which they first appear in the ratings. NotFound for a user without ratings.
absl::Status PredictItems(train::Estimator& estimator, const Ratings& ratings, const PredictOptions& options,
                          std::ostream& out);

}  // namespace official::recommendation
