#include "official/recommendation/data/eval_data.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "utils/compute/core/check.h"
#include "utils/compute/core/random.h"
#include "utils/compute/core/status.h"
#include "utils/compute/cpu/parallel.h"
#include "utils/data/random.h"
#include "utils/logs/task_progress.h"

namespace official::recommendation {
namespace {

// A set of items.
class ItemSet {
 public:
  explicit ItemSet(int32_t num_items) : words_((num_items + 63) / 64) {}
  void Clear() { std::fill(words_.begin(), words_.end(), 0); }
  // False if it was there.
  bool Insert(int32_t item) {
    uint64_t& word = words_[item / 64];
    const uint64_t before = word;
    word |= uint64_t{1} << item % 64;
    return word != before;
  }
  bool Contains(int32_t item) const { return words_[item / 64] >> item % 64 & 1; }

 private:
  std::vector<uint64_t> words_;
};

// The user with the fewest unrated items, of several the first.
struct FewestUnrated {
  int32_t user = 0;
  int32_t num_rated = 0, num_left = 0;
};

FewestUnrated FindFewestUnrated(const Ratings& ratings) {
  const int32_t num_users = ratings.num_users(), num_items = ratings.num_items();
  std::vector<int32_t> num_rated(num_users);
  compute::ParallelFor(num_users, 16, [&](int64_t begin, int64_t end) {
    ItemSet rated(num_items);
    for (int64_t user = begin; user < end; ++user) {
      rated.Clear();
      num_rated[user] = rated.Insert(ratings.held_out[user]);
      for (const int32_t item : ratings.TrainItems(static_cast<int32_t>(user))) num_rated[user] += rated.Insert(item);
    }
  });
  const auto most = std::max_element(num_rated.begin(), num_rated.end());
  return {static_cast<int32_t>(most - num_rated.begin()), *most, num_items - *most};
}

// How many negatives each user gets, and why.
absl::Status ChooseNumNegatives(const Ratings& ratings, const EvalOptions& options, int* num_negatives,
                                std::string* note) {
  *num_negatives = options.num_negatives.value_or(kUsualNegatives);
  const FewestUnrated fewest = FindFewestUnrated(ratings);
  if (fewest.num_left >= *num_negatives) return absl::OkStatus();
  const std::string who = absl::StrFormat("user %d has rated %d of the %d items", ratings.user_ids[fewest.user],
                                          fewest.num_rated, ratings.num_items());
  // With replacement any number can be drawn, but the ranking has no more items than there are.
  const int needed = !options.num_negatives     ? kFewestUsualNegatives
                     : options.with_replacement ? kFewestNegatives
                                                : *num_negatives;
  if (fewest.num_left >= needed) {
    if (options.with_replacement) {
      *note =
          absl::StrFormat("evaluations rank a user's last item among at most %d different negatives, of %d drawn: %s",
                          fewest.num_left, *num_negatives, who);
      return absl::OkStatus();
    }
    *num_negatives = fewest.num_left;
    *note = absl::StrFormat("evaluations rank a user's last item among %d negatives, not %d: %s", fewest.num_left,
                            kUsualNegatives, who);
    return absl::OkStatus();
  }
  // So many rank the item among all that are left.
  const int enough = options.with_replacement ? *num_negatives : fewest.num_left;
  return absl::InvalidArgumentError(
      absl::StrFormat("%s, which leaves %d to be drawn as negatives for the evaluation, where %d are needed%s", who,
                      fewest.num_left, needed,
                      fewest.num_left < kFewestNegatives
                          ? ": leave this user out, or give ratings of more users and items"
                          : absl::StrFormat("; give --num_eval_negatives=%d, or leave this user out", enough)));
}

}  // namespace

absl::StatusOr<EvalData> MakeEvalData(const Ratings& ratings, const EvalOptions& options) {
  OFFICIAL_CHECK(options.num_negatives.value_or(1) >= 1);
  EvalData eval;
  int num_negatives;
  RETURN_IF_ERROR(ChooseNumNegatives(ratings, options, &num_negatives, &eval.note));
  const int32_t num_users = ratings.num_users(), num_items = ratings.num_items();
  const int64_t num_candidates = 1 + num_negatives;
  std::vector<std::vector<int32_t>> repeats(num_users);
  eval.num_candidates = static_cast<int>(num_candidates);
  eval.items.resize(num_users * num_candidates);
  logs::TaskProgress progress(
      {.title = "drawing the negatives of the evaluation", .total = num_users, .unit = "users"});
  compute::ParallelFor(num_users, 16, [&](int64_t begin, int64_t end) {
    ItemSet rated(num_items), drawn(num_items);
    for (int64_t user = begin; user < end; ++user) {
      rated.Clear();
      drawn.Clear();
      rated.Insert(ratings.held_out[user]);
      for (const int32_t item : ratings.TrainItems(static_cast<int32_t>(user))) rated.Insert(item);
      int32_t* row = eval.items.data() + user * num_candidates;
      row[0] = ratings.held_out[user];
      data::Random random(options.seed ^ compute::StreamOf("evaluation", 10), 0, user);
      for (int32_t column = 1; column < num_candidates;) {
        const auto item = static_cast<int32_t>(random.UniformInt(num_items));
        if (rated.Contains(item)) continue;
        if (!drawn.Insert(item)) {
          if (!options.with_replacement) continue;
          repeats[user].push_back(column);
        }
        row[column++] = item;
      }
    }
    progress.Add(end - begin);
  });
  eval.repeat_offsets.push_back(0);
  for (const std::vector<int32_t>& columns : repeats) {
    eval.repeats.insert(eval.repeats.end(), columns.begin(), columns.end());
    eval.repeat_offsets.push_back(static_cast<int64_t>(eval.repeats.size()));
  }
  return eval;
}

}  // namespace official::recommendation
