#include "official/recommendation/ncf_predict.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "official/recommendation/ncf_input.h"
#include "utils/compute/core/status.h"
#include "utils/logs/json.h"
#include "utils/misc/text.h"
#include "utils/run/predict_lines.h"

namespace official::recommendation {
namespace {

using compute::DType;
using compute::Tensor;

// The items that the user has not rated, best first, at most k.
std::vector<int32_t> BestRows(const Ratings& ratings, int32_t user, absl::Span<const float> scores, int k) {
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

void PrintJson(int32_t user_id, const BestItems& best, const Ratings& ratings, const ItemNames& names,
               std::ostream& out) {
  logs::Json::Array values;
  for (size_t i = 0; i < best.items.size(); ++i) {
    const int32_t id = ratings.item_ids[best.items[i]];
    logs::Json::Object value = {{"item", int64_t{id}}};
    const auto name = names.find(id);
    if (name != names.end()) value.emplace_back("name", name->second);
    value.emplace_back("rating", static_cast<double>(best.scores[i]));
    values.emplace_back(std::move(value));
  }
  out << logs::DumpJson(logs::Json::Object{{"user", int64_t{user_id}}, {"items", std::move(values)}}) << "\n";
}

void PrintText(int32_t user_id, const BestItems& best, const Ratings& ratings, const ItemNames& names,
               std::ostream& out) {
  out << "user " << user_id << ":\n";
  for (size_t i = 0; i < best.items.size(); ++i) {
    const int32_t id = ratings.item_ids[best.items[i]];
    const auto name = names.find(id);
    out << absl::StrFormat("  %8.4f  item %d%s\n", best.scores[i], id,
                           name == names.end() ? "" : absl::StrCat("  ", name->second));
  }
}

absl::Status PredictUser(train::Estimator& estimator, const Ratings& ratings, int32_t id, const PredictOptions& options,
                         std::ostream& out) {
  ASSIGN_OR_RETURN(const int32_t user, FindUser(ratings, id));
  ASSIGN_OR_RETURN(const BestItems best, FindBestItems(estimator, ratings, user, options.top_k));
  (options.json ? PrintJson : PrintText)(id, best, ratings, options.item_names, out);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<int32_t> FindUser(const Ratings& ratings, int32_t id) {
  const auto found = std::find(ratings.user_ids.begin(), ratings.user_ids.end(), id);
  if (found != ratings.user_ids.end()) return static_cast<int32_t>(found - ratings.user_ids.begin());
  return absl::NotFoundError(absl::StrFormat("user %d is not among the %d users with at least %d ratings", id,
                                             ratings.num_users(), kFewestRatings));
}

absl::StatusOr<std::vector<float>> ScoresOfItems(train::Estimator& estimator, const Ratings& ratings, int32_t user) {
  const int64_t num_items = ratings.num_items();
  const Tensor users(DType::kInt32, {num_items}), items(DType::kInt32, {num_items});
  std::iota(items.data<int32_t>(), items.data<int32_t>() + num_items, 0);
  std::fill_n(users.data<int32_t>(), num_items, user);
  ASSIGN_OR_RETURN(const auto results, estimator.Predict(TrainSpec(), {users, items}));
  const absl::Span<const float> scores = results[0].second.flat<float>();
  return std::vector<float>(scores.begin(), scores.end());
}

absl::StatusOr<BestItems> FindBestItems(train::Estimator& estimator, const Ratings& ratings, int32_t user, int top_k) {
  ASSIGN_OR_RETURN(const std::vector<float> scores, ScoresOfItems(estimator, ratings, user));
  BestItems best{BestRows(ratings, user, scores, top_k), {}};
  for (const int32_t item : best.items) best.scores.push_back(scores[item]);
  return best;
}

absl::Status PredictItems(train::Estimator& estimator, const Ratings& ratings, const PredictOptions& options,
                          std::ostream& out) {
  for (const int32_t id : options.users) {
    const absl::Status status = PredictUser(estimator, ratings, id, options, out);
    if (!status.ok()) return absl::Status(status.code(), absl::StrCat("--predict: ", status.message()));
  }
  return absl::OkStatus();
}

absl::Status PredictLines(train::Estimator& estimator, const Ratings& ratings, int in, const PredictOptions& options,
                          std::ostream& out) {
  const auto read = [&](const std::string& line) -> absl::StatusOr<int32_t> {
    int32_t id;
    if (!absl::SimpleAtoi(line, &id)) {
      return absl::InvalidArgumentError(absl::StrCat("'", misc::Printable(line), "' is not the number of a user"));
    }
    RETURN_IF_ERROR(FindUser(ratings, id).status());
    return id;
  };
  const auto predict = [&](const std::vector<int32_t>& users) -> absl::Status {
    return PredictUser(estimator, ratings, users[0], options, out);
  };
  // A user's items are a batch.
  return run::PredictLines<int32_t>(in, /*max_batch=*/1, read, predict, out);
}

}  // namespace official::recommendation
