// Ratings made by this program where there are no others: users with tastes, items of one taste each, and some items
// far more popular than others.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "official/recommendation/data/ratings.h"

namespace official::recommendation {

// The size of the generated data set, by default that of MovieLens 1M.
struct GeneratorOptions {
  int32_t num_users = 6040;
  int32_t num_items = 3706;
  int64_t num_ratings = 1000209;
  uint64_t seed = 1;
};

// Returns exactly that many users, items and ratings, no pair twice, each user with at least 20 ratings, most with less
// than the mean and a few with very many, but all with at least 1000 unrated items. The ratings are grouped by user.
// The result is the same for any number of threads.
//
// There are 32 tastes. Every item belongs to one, and within it the r-th most popular is chosen with a probability of
// about (r + 1)^-3/4. A user rates items of a few tastes, one of which is the favourite, and sometimes of any.
// InvalidArgument if there are fewer than 20 ratings for each user, more than that leaves room for, more than 20 times
// as many items as users, or fewer than 1100 items.
absl::StatusOr<std::vector<Rating>> GenerateRatings(const GeneratorOptions& options);

// Writes a ratings.csv. The rating value is the same in all lines: implicit feedback ignores it.
absl::Status WriteRatings(const std::string& path, absl::Span<const Rating> ratings);

}  // namespace official::recommendation
