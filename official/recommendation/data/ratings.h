// Ratings of items by users, as implicit feedback: what counts is that a user rated an item, not how.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace official::recommendation {

// One line of a ratings file.
struct Rating {
  int32_t user = 0;  // its number in the file, from 1 on
  int32_t item = 0;
  int64_t timestamp = 0;  // seconds since 1970
  friend bool operator==(const Rating&, const Rating&) = default;
};

// Ratings after the leave-one-out split. U users and I items, both numbered from 0 on in the order in which they first
// appear among the ratings that are kept.
struct Ratings {
  std::vector<int32_t> user_ids;  // [U] their numbers in the file
  std::vector<int32_t> item_ids;  // [I]
  // The items that each user rated and that may be trained on, at least one, the users one after another, each user's
  // items in ascending order. An item that a user rated more than once is there more than once.
  std::vector<int32_t> train_items;  // [P]
  std::vector<int64_t> offsets;      // [U + 1]: user u's items are [offsets[u], offsets[u + 1]) of train_items
  std::vector<int32_t> held_out;     // [U] each user's last item, for evaluation only
  // The users that were dropped, and their ratings.
  int64_t num_left_out_users = 0, num_left_out_ratings = 0;

  int32_t num_users() const { return static_cast<int32_t>(held_out.size()); }
  int32_t num_items() const { return static_cast<int32_t>(item_ids.size()); }
  int64_t num_positives() const { return static_cast<int64_t>(train_items.size()); }
  absl::Span<const int32_t> TrainItems(int32_t user) const {
    return absl::MakeSpan(train_items).subspan(offsets[user], offsets[user + 1] - offsets[user]);
  }
};

// The fewest ratings with which a user is kept. All users of MovieLens have as many.
inline constexpr int kFewestRatings = 20;

// The official preprocessing (tensorflow/models@d64bcfe official/recommendation/data_preprocessing.py): drops users
// with fewer than `min_ratings` (at least 2) ratings, numbers the others and their items, and holds out each user's
// rating with the largest timestamp; of ratings with the same timestamp the last one in the order given.
// InvalidArgument if no user is left.
absl::StatusOr<Ratings> SplitRatings(std::vector<Rating> ratings, int min_ratings = kFewestRatings);

}  // namespace official::recommendation
