#include "official/recommendation/ncf_predict.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "official/recommendation/ncf_input.h"
#include "utils/compute/core/status.h"
#include "utils/logs/json.h"

namespace official::recommendation {
namespace {

using compute::DType;
using compute::Tensor;

// The items that the user has not rated, best first, at most k.
std::vector<int32_t> BestItems(const Ratings& ratings, int32_t user, absl::Span<const float> scores, int k) {
  const absl::Span<const int32_t> rated = ratings.TrainItems(user);
  std::vector<int32_t> items;
  for (int32_t item = 0; item < ratings.num_items(); ++item) {
    if (item == ratings.held_out[user] || std::binary_search(rated.begin(), rated.end(), item)) continue;
    items.push_back(item);
  }
  std::stable_sort(items.begin(), items.end(), [&](int32_t a, int32_t b) { return scores[a] > scores[b]; });
  items.resize(std::min(items.size(), static_cast<size_t>(k)));
  return items;
}

void PrintJson(int32_t user_id, absl::Span<const int32_t> items, const Ratings& ratings, absl::Span<const float> scores,
               const ItemNames& names, std::ostream& out) {
  logs::Json::Array values;
  for (const int32_t item : items) {
    logs::Json::Object value = {{"item", int64_t{ratings.item_ids[item]}}};
    const auto name = names.find(ratings.item_ids[item]);
    if (name != names.end()) value.emplace_back("name", name->second);
    value.emplace_back("rating", static_cast<double>(scores[item]));
    values.emplace_back(std::move(value));
  }
  out << logs::DumpJson(logs::Json::Object{{"user", int64_t{user_id}}, {"items", std::move(values)}}) << "\n";
}

void PrintText(int32_t user_id, absl::Span<const int32_t> items, const Ratings& ratings, absl::Span<const float> scores,
               const ItemNames& names, std::ostream& out) {
  out << "user " << user_id << ":\n";
  for (const int32_t item : items) {
    const auto name = names.find(ratings.item_ids[item]);
    out << absl::StrFormat("  %8.4f  item %d%s\n", scores[item], ratings.item_ids[item],
                           name == names.end() ? "" : absl::StrCat("  ", name->second));
  }
}

}  // namespace

absl::Status PredictItems(train::Estimator& estimator, const Ratings& ratings, const PredictOptions& options,
                          std::ostream& out) {
  const int64_t num_items = ratings.num_items();
  const Tensor users(DType::kInt32, {num_items}), items(DType::kInt32, {num_items});
  std::iota(items.data<int32_t>(), items.data<int32_t>() + num_items, 0);
  for (const int32_t id : options.users) {
    const auto found = std::find(ratings.user_ids.begin(), ratings.user_ids.end(), id);
    if (found == ratings.user_ids.end()) {
      return absl::NotFoundError(
          absl::StrCat("--predict: user ", id, " is not among the ", ratings.num_users(), " users of the ratings"));
    }
    const auto user = static_cast<int32_t>(found - ratings.user_ids.begin());
    std::fill_n(users.data<int32_t>(), num_items, user);
    ASSIGN_OR_RETURN(const auto results, estimator.Predict(TrainSpec(), {users, items}));
    const absl::Span<const float> scores = results[0].second.flat<float>();
    const std::vector<int32_t> best = BestItems(ratings, user, scores, options.top_k);
    (options.json ? PrintJson : PrintText)(id, best, ratings, scores, options.item_names, out);
  }
  return absl::OkStatus();
}

}  // namespace official::recommendation
