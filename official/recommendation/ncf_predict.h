// What users will choose, by a trained network.
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
  std::vector<int32_t> users;  // as the ratings file calls them
  int top_k = 10;
  ItemNames item_names = {};  // printed beside the items; those without a name are printed by number alone
  bool json = false;
};

// Prints the top_k items with the highest scores for each user, of those that the user has not rated; of equal ones
// first the one that comes first in the ratings. NotFound for a user without ratings.
absl::Status PredictItems(train::Estimator& estimator, const Ratings& ratings, const PredictOptions& options,
                          std::ostream& out);

}  // namespace official::recommendation
