// Prediction, by a trained network, of the items that users will choose.
#pragma once

#include <cstdint>
#include <ostream>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
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
// order in which they first appear in the ratings. NotFound for a user whom the ratings do not have.
absl::Status PredictItems(train::Estimator& estimator, const Ratings& ratings, const PredictOptions& options,
                          std::ostream& out);

// Does the same for the users in the lines that arrive at the descriptor `in`, until its end. A line that is not the
// number of a user of the ratings is logged with its number, and the others follow; at the end the error is DataLoss if
// there was such a line.
absl::Status PredictLines(train::Estimator& estimator, const Ratings& ratings, int in, const PredictOptions& options,
                          std::ostream& out);

// Returns the row of the user in the embeddings; NotFound for a user whom the ratings do not have.
absl::StatusOr<int32_t> FindUser(const Ratings& ratings, int32_t id);

// Returns the scores of all items for the user of a row.
absl::StatusOr<std::vector<float>> ScoresOfItems(train::Estimator& estimator, const Ratings& ratings, int32_t user);

// The top_k items for a user, by their rows, and their scores.
struct BestItems {
  std::vector<int32_t> items;
  std::vector<float> scores;
};

// Finds the items for the user of a row.
absl::StatusOr<BestItems> FindBestItems(train::Estimator& estimator, const Ratings& ratings, int32_t user, int top_k);

}  // namespace official::recommendation
