#include "official/recommendation/ncf_samples.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "official/recommendation/ncf_predict.h"
#include "utils/compute/core/status.h"

namespace official::recommendation {
namespace {

constexpr size_t kRecommended = 10;  // items of a user, as many as HR counts

// The items that the user has not rated, and the held-out one, best first.
std::vector<int32_t> RankedItems(const Ratings& ratings, int32_t user, const std::vector<float>& scores) {
  const absl::Span<const int32_t> rated = ratings.TrainItems(user);
  const int32_t held_out = ratings.held_out[user];
  std::vector<int32_t> items;
  for (int32_t item = 0; item < ratings.num_items(); ++item) {
    if (item != held_out && !std::binary_search(rated.begin(), rated.end(), item)) items.push_back(item);
  }
  items.push_back(held_out);  // last: it comes after its equals
  std::stable_sort(items.begin(), items.end(), [&](int32_t a, int32_t b) { return scores[a] > scores[b]; });
  return items;
}

std::string NameOf(int32_t item, const Ratings& ratings, const ItemNames& names) {
  const int32_t id = ratings.item_ids[item];
  const auto name = names.find(id);
  return name == names.end() ? absl::StrCat("item ", id) : name->second;
}

}  // namespace

absl::StatusOr<train::EvalSamples> SampleUsers(train::Estimator& estimator, const Ratings& ratings,
                                               const ItemNames& names, int max_users) {
  train::EvalSamples samples{.columns = {"user", "held-out item", "its place", "recommended"}, .rows = {}};
  for (int32_t user = 0; user < std::min(ratings.num_users(), max_users); ++user) {
    ASSIGN_OR_RETURN(const std::vector<float> scores, ScoresOfItems(estimator, ratings, user));
    const std::vector<int32_t> items = RankedItems(ratings, user, scores);
    const int32_t held_out = ratings.held_out[user];
    const auto place = std::find(items.begin(), items.end(), held_out) - items.begin() + 1;
    std::vector<std::string> recommended;
    for (size_t i = 0; i < std::min(items.size(), kRecommended); ++i) {
      recommended.push_back(absl::StrCat(i + 1, ". ", NameOf(items[i], ratings, names)));
    }
    samples.rows.push_back({absl::StrCat(ratings.user_ids[user]), NameOf(held_out, ratings, names),
                            absl::StrCat(place, " of ", items.size()), absl::StrJoin(recommended, "; ")});
  }
  return samples;
}

}  // namespace official::recommendation
