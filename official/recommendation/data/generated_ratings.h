// Ratings made by this program, for where there are no others: users with tastes, items of one taste each, and some
// items far more popular than others.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "official/recommendation/data/ratings.h"

namespace official::recommendation {

// By default as many as in MovieLens 1M.
struct GeneratorOptions {
  int32_t num_users = 6040;
  int32_t num_items = 3706;
  int64_t num_ratings = 1000209;
  uint64_t seed = 1;
};

// Exactly that many users, items and ratings, no pair twice, each user with at least 20 ratings, most with less than
// the mean and a few with very many, but all with 1000 items that they did not rate. The users one after another. The
// same for any number of threads.
//
// There are 32 tastes. Every item belongs to one, and within it the r-th most popular is chosen with a probability of
// about (r + 1)^-3/4. A user rates items of a few tastes, one of which is the favourite, and now and then of any.
// InvalidArgument if there are fewer than 20 ratings for each user, more than that leaves room for, more than 20 times
// as many items as users, or fewer than 1100 items.
absl::StatusOr<std::vector<Rating>> GenerateRatings(const GeneratorOptions& options);

// Writes a ratings.csv. The rating itself is the same everywhere: implicit feedback does not look at it.
absl::Status WriteRatings(const std::string& path, absl::Span<const Rating> ratings);

}  // namespace official::recommendation
