#include "official/recommendation/data/ratings.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_format.h"
#include "utils/compute/core/check.h"

namespace official::recommendation {
namespace {

// Numbers ids in the order in which they first appear.
class Numbering {
 public:
  int32_t operator()(int32_t id) {
    // Files list a user's ratings together.
    if (!ids_.empty() && id == last_id_) return last_number_;
    const auto [it, is_new] = numbers_.try_emplace(id, static_cast<int32_t>(ids_.size()));
    if (is_new) ids_.push_back(id);
    last_id_ = id;
    last_number_ = it->second;
    return last_number_;
  }
  std::vector<int32_t> TakeIds() { return std::move(ids_); }
  size_t size() const { return ids_.size(); }

 private:
  absl::flat_hash_map<int32_t, int32_t> numbers_;
  std::vector<int32_t> ids_;
  int32_t last_id_ = 0, last_number_ = 0;
};

}  // namespace

absl::StatusOr<Ratings> SplitRatings(absl::Span<const Rating> ratings, int min_ratings) {
  OFFICIAL_CHECK(min_ratings >= 2) << "min_ratings = " << min_ratings;
  Numbering all_users;
  std::vector<int64_t> counts;
  int64_t most = 0;
  for (const Rating& rating : ratings) {
    const int32_t user = all_users(rating.user);
    if (user == static_cast<int32_t>(counts.size())) counts.push_back(0);
    most = std::max(most, ++counts[user]);
  }
  if (most < min_ratings) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "none of the %d users has %d ratings, the fewest that a user is kept with; the most that one has is %d",
        counts.size(), min_ratings, most));
  }

  Numbering users, items;
  std::vector<Rating> kept;  // under the new numbers
  kept.reserve(ratings.size());
  for (const Rating& rating : ratings) {
    if (counts[all_users(rating.user)] < min_ratings) continue;
    kept.push_back({users(rating.user), items(rating.item), rating.timestamp});
  }
  const size_t num_users = users.size();
  std::vector<int64_t> last(num_users, -1);  // each user's last rating
  for (size_t i = 0; i < kept.size(); ++i) {
    int64_t& l = last[kept[i].user];
    if (l < 0 || kept[i].timestamp >= kept[l].timestamp) l = static_cast<int64_t>(i);
  }

  Ratings split;
  split.user_ids = users.TakeIds();
  split.item_ids = items.TakeIds();
  split.held_out.resize(num_users);
  split.offsets.assign(num_users + 1, 0);
  for (const Rating& rating : kept) ++split.offsets[rating.user + 1];
  for (size_t u = 0; u < num_users; ++u) split.offsets[u + 1] += split.offsets[u] - 1;
  split.train_items.resize(kept.size() - num_users);
  std::vector<int64_t> next(split.offsets.begin(), split.offsets.end() - 1);
  for (size_t i = 0; i < kept.size(); ++i) {
    const int32_t user = kept[i].user;
    if (last[user] == static_cast<int64_t>(i)) {
      split.held_out[user] = kept[i].item;
    } else {
      split.train_items[next[user]++] = kept[i].item;
    }
  }
  for (size_t u = 0; u < num_users; ++u) {
    std::sort(split.train_items.begin() + split.offsets[u], split.train_items.begin() + split.offsets[u + 1]);
  }
  return split;
}

}  // namespace official::recommendation
