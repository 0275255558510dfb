#include "official/recommendation/data/eval_data.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "utils/compute/core/check.h"
#include "utils/compute/cpu/parallel.h"
#include "utils/data/random.h"

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

}  // namespace

absl::StatusOr<EvalData> MakeEvalData(const Ratings& ratings, const EvalOptions& options) {
  OFFICIAL_CHECK(options.num_negatives >= 1);
  const int32_t num_users = ratings.num_users(), num_items = ratings.num_items();
  const int64_t num_candidates = 1 + options.num_negatives;
  const int32_t wanted = options.with_replacement ? 1 : options.num_negatives;
  std::vector<int32_t> num_rated(num_users);
  std::vector<std::vector<int32_t>> repeats(num_users);
  EvalData eval;
  eval.num_candidates = static_cast<int>(num_candidates);
  eval.items.resize(num_users * num_candidates);
  compute::ParallelFor(num_users, 16, [&](int64_t begin, int64_t end) {
    ItemSet rated(num_items), drawn(num_items);
    for (int64_t user = begin; user < end; ++user) {
      rated.Clear();
      drawn.Clear();
      num_rated[user] = rated.Insert(ratings.held_out[user]);
      for (const int32_t item : ratings.TrainItems(user)) num_rated[user] += rated.Insert(item);
      if (num_items - num_rated[user] < wanted) continue;
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
  });
  for (int32_t user = 0; user < num_users; ++user) {
    const int32_t left = num_items - num_rated[user];
    if (left >= wanted) continue;
    return absl::InvalidArgumentError(
        absl::StrFormat("user %d has rated %d of the %d items, which leaves %d to be drawn as negatives for the "
                        "evaluation, where %d are wanted%s",
                        ratings.user_ids[user], num_rated[user], num_items, left, wanted,
                        left > 0 ? "; with --ml_perf one is enough"
                                 : ": leave this user out, or give ratings of more users and items"));
  }
  eval.repeat_offsets.push_back(0);
  for (const std::vector<int32_t>& columns : repeats) {
    eval.repeats.insert(eval.repeats.end(), columns.begin(), columns.end());
    eval.repeat_offsets.push_back(static_cast<int64_t>(eval.repeats.size()));
  }
  return eval;
}

}  // namespace official::recommendation
