#include "official/recommendation/data/ratings.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_format.h"
#include "utils/compute/core/check.h"
#include "utils/compute/cpu/parallel.h"
#include "utils/logs/task_progress.h"

namespace official::recommendation {
namespace {

// Numbers ids, which are at least 1, from 0 on in the order in which they first appear.
class Numbering {
 public:
  // `num_ratings` bounds how many ids there can be.
  Numbering(int32_t largest_id, size_t num_ratings) {
    if (static_cast<size_t>(largest_id) / 4 < num_ratings) table_.assign(size_t{1} + largest_id, kNone);
  }

  int32_t operator()(int32_t id) {
    // Files list a user's ratings together.
    if (id == last_id_) return last_number_;
    int32_t& number = table_.empty() ? map_.try_emplace(id, kNone).first->second : table_[id];
    if (number == kNone) {
      number = static_cast<int32_t>(ids_.size());
      ids_.push_back(id);
    }
    last_id_ = id;
    last_number_ = number;
    return number;
  }
  std::vector<int32_t> TakeIds() { return std::move(ids_); }
  size_t size() const { return ids_.size(); }

 private:
  static constexpr int32_t kNone = -1;

  // The numbers of the ids: in an array of all ids, unless most would be missing from it.
  std::vector<int32_t> table_;
  absl::flat_hash_map<int32_t, int32_t> map_;
  std::vector<int32_t> ids_;
  int32_t last_id_ = 0, last_number_ = 0;
};

}  // namespace

absl::StatusOr<Ratings> SplitRatings(std::vector<Rating> ratings, int min_ratings) {
  OFFICIAL_CHECK(min_ratings >= 2) << "min_ratings = " << min_ratings;
  const logs::TaskProgress progress({.title = "sorting the ratings by user"});
  int32_t largest_user = 0, largest_item = 0;
  for (const Rating& rating : ratings) {
    largest_user = std::max(largest_user, rating.user);
    largest_item = std::max(largest_item, rating.item);
  }
  Numbering all_users(largest_user, ratings.size());
  std::vector<int64_t> counts;
  int64_t most = 0;
  for (const Rating& rating : ratings) {
    const int32_t user = all_users(rating.user);
    if (user == static_cast<int32_t>(counts.size())) counts.push_back(0);
    most = std::max(most, ++counts[user]);
  }
  if (most < min_ratings) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "none of the %d users has %d ratings, the minimum for keeping a user; the most that one has is %d",
        counts.size(), min_ratings, most));
  }

  Numbering users(largest_user, ratings.size()), items(largest_item, ratings.size());
  // Those that are kept, under the new numbers.
  size_t num_kept = 0;
  for (const Rating& rating : ratings) {
    if (counts[all_users(rating.user)] < min_ratings) continue;
    ratings[num_kept++] = {users(rating.user), items(rating.item), rating.timestamp};
  }
  const absl::Span<const Rating> kept(ratings.data(), num_kept);
  const size_t num_users = users.size();
  std::vector<int64_t> last(num_users, -1);  // each user's last rating
  for (size_t i = 0; i < kept.size(); ++i) {
    int64_t& l = last[kept[i].user];
    if (l < 0 || kept[i].timestamp >= kept[l].timestamp) l = static_cast<int64_t>(i);
  }

  Ratings split;
  split.num_left_out_users = static_cast<int64_t>(counts.size() - num_users);
  split.num_left_out_ratings = static_cast<int64_t>(ratings.size() - num_kept);
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
  compute::ParallelFor(num_users, 64, [&](int64_t begin, int64_t end) {
    for (int64_t u = begin; u < end; ++u) {
      std::sort(split.train_items.begin() + split.offsets[u], split.train_items.begin() + split.offsets[u + 1]);
    }
  });
  return split;
}

}  // namespace official::recommendation
