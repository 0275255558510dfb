#include "official/recommendation/data/train_sampler.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "utils/data/permutation.h"
#include "utils/data/random.h"

namespace official::recommendation {

absl::StatusOr<std::unique_ptr<TrainSampler>> TrainSampler::Create(const Ratings& ratings, int num_negatives,
                                                                   uint64_t seed) {
  if (num_negatives < 0) {
    return absl::InvalidArgumentError(absl::StrFormat("num_neg is %d, but cannot be negative", num_negatives));
  }
  for (int32_t user = 0; user < ratings.num_users() && num_negatives > 0; ++user) {
    const absl::Span<const int32_t> items = ratings.TrainItems(user);
    int64_t distinct = 0;
    for (size_t i = 0; i < items.size(); ++i) distinct += i == 0 || items[i] != items[i - 1];
    if (distinct == ratings.num_items()) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "user %d has rated all %d items, so that no negative can be drawn: leave this user out, or set --num_neg=0",
          ratings.user_ids[user], distinct));
    }
  }
  return std::unique_ptr<TrainSampler>(new TrainSampler(ratings, num_negatives, seed));
}

TrainSampler::TrainSampler(const Ratings& ratings, int num_negatives, uint64_t seed)
    : ratings_(ratings),
      num_negatives_(num_negatives),
      seed_(seed),
      num_examples_(ratings.num_positives() * (1 + num_negatives)),
      users_(ratings.num_positives()) {
  for (int32_t user = 0; user < ratings.num_users(); ++user) {
    std::fill(users_.begin() + ratings.offsets[user], users_.begin() + ratings.offsets[user + 1], user);
  }
}

void TrainSampler::Fill(int64_t begin, int64_t end, int32_t* users, int32_t* items, float* labels) const {
  while (begin < end) {
    const int64_t epoch = begin / num_examples_, epoch_end = (epoch + 1) * num_examples_;
    const data::Permutation order(num_examples_, seed_, epoch);
    for (const int64_t stop = std::min(end, epoch_end); begin < stop; ++begin) {
      const int64_t example = order(begin % num_examples_);
      const int64_t positive = example / (1 + num_negatives_);
      const int32_t user = users_[positive];
      const bool is_positive = example % (1 + num_negatives_) == 0;
      int32_t item = ratings_.train_items[positive];
      if (!is_positive) {
        const absl::Span<const int32_t> rated = ratings_.TrainItems(user);
        data::Random random(seed_, epoch, example);
        do item = static_cast<int32_t>(random.UniformInt(ratings_.num_items()));
        while (std::binary_search(rated.begin(), rated.end(), item));
      }
      *users++ = user;
      *items++ = item;
      *labels++ = is_positive ? 1 : 0;
    }
  }
}

}  // namespace official::recommendation
