#include "official/recommendation/data/train_sampler.h"

#include <algorithm>
#include <bit>

#include "absl/strings/str_format.h"
#include "utils/compute/core/random.h"
#include "utils/compute/cpu/simd.h"

namespace official::recommendation {
namespace {

constexpr int64_t kFilterBits = 16;  // at least, for each of a user's ratings

// What a negative example's item is drawn with; attempts count from 0 until the user has not rated it.
uint32_t DrawWord(uint64_t key, int64_t epoch, int64_t example, uint32_t attempt) {
  return compute::Philox(key, {attempt, static_cast<uint32_t>(epoch), static_cast<uint32_t>(example),
                               static_cast<uint32_t>(example >> 32)})[0];
}

int64_t NumDistinct(absl::Span<const int32_t> sorted) {
  int64_t distinct = 0;
  for (size_t i = 0; i < sorted.size(); ++i) distinct += i == 0 || sorted[i] != sorted[i - 1];
  return distinct;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TrainSampler>> TrainSampler::Create(const Ratings& ratings, int num_negatives,
                                                                   uint64_t seed) {
  if (num_negatives < 0) {
    return absl::InvalidArgumentError(absl::StrFormat("num_neg is %d, but cannot be negative", num_negatives));
  }
  for (int32_t user = 0; user < ratings.num_users() && num_negatives > 0; ++user) {
    if (NumDistinct(ratings.TrainItems(user)) < ratings.num_items()) continue;
    return absl::InvalidArgumentError(absl::StrFormat(
        "user %d has rated all %d items, so that no negative can be drawn: leave this user out, or set --num_neg=0",
        ratings.user_ids[user], ratings.num_items()));
  }
  return std::unique_ptr<TrainSampler>(new TrainSampler(ratings, num_negatives, seed));
}

TrainSampler::TrainSampler(const Ratings& ratings, int num_negatives, uint64_t seed)
    : ratings_(ratings),
      num_negatives_(num_negatives),
      num_items_(ratings.num_items()),
      seed_(seed),
      key_(seed ^ compute::StreamOf("negatives", 9)),
      num_examples_(ratings.num_positives() * (1 + num_negatives)),
      filters_(ratings.num_users()) {
  positives_.reserve(ratings.num_positives());
  int64_t num_words = 0;
  for (int32_t user = 0; user < ratings.num_users(); ++user) {
    for (const int32_t item : ratings.TrainItems(user)) positives_.push_back({user, item});
    const int64_t bits = std::bit_ceil(std::max<uint64_t>(64, ratings.TrainItems(user).size() * kFilterBits));
    const bool exact = bits >= num_items_;
    filters_[user] = {num_words, exact ? kExact : static_cast<uint32_t>(bits - 1)};
    num_words += ((exact ? num_items_ : bits) + 63) / 64;
  }
  filter_words_.resize(num_words);
  for (int32_t user = 0; user < ratings.num_users(); ++user) {
    for (const int32_t item : ratings.TrainItems(user)) {
      const uint32_t bit = static_cast<uint32_t>(item) & filters_[user].mask;
      filter_words_[filters_[user].begin + bit / 64] |= uint64_t{1} << bit % 64;
    }
  }
}

void TrainSampler::Fill(int64_t begin, int64_t end, int32_t* users, int32_t* items, float* labels) const {
  while (begin < end) {
    const int64_t epoch = begin / num_examples_, epoch_begin = epoch * num_examples_;
    const int64_t stop = std::min(end, epoch_begin + num_examples_);
    const data::Permutation order(num_examples_, seed_, epoch);
    while (begin < stop) {
      const int64_t n = std::min(kBlock, stop - begin);
      FillBlock(order, epoch, begin - epoch_begin, n, users, items, labels);
      begin += n;
      users += n;
      items += n;
      labels += n;
    }
  }
}

void TrainSampler::FillBlock(const data::Permutation& order, int64_t epoch, int64_t begin, int64_t n, int32_t* users,
                             int32_t* items, float* labels) const {
  // Example e is for rating e / (1 + num_negatives): itself, then its negatives.
  int64_t examples[kBlock], positives[kBlock];
  order.Map(begin, n, examples);
  // Exact below 2^50 examples: the half keeps the quotient away from whole numbers.
  const double reciprocal = 1.0 / (1 + num_negatives_);
  for (int64_t k = 0; k < n; ++k) positives[k] = static_cast<int64_t>((examples[k] + 0.5) * reciprocal);
  int64_t negatives[kBlock];  // where they are, those without an item
  int64_t num_left = 0;
  for (int64_t k = 0; k < n; ++k) {
    const Positive positive = positives_[positives[k]];
    const bool is_negative = examples[k] != positives[k] * (1 + num_negatives_);
    users[k] = positive.user;
    items[k] = positive.item;
    labels[k] = is_negative ? 0 : 1;
    negatives[num_left] = k;
    num_left += is_negative;
  }
  uint32_t words[kBlock];
  for (uint32_t attempt = 0; num_left > 0; ++attempt) {
    compute::WithSimd([&] {
      for (int64_t j = 0; j < num_left; ++j) words[j] = DrawWord(key_, epoch, examples[negatives[j]], attempt);
    });
    // Without branches that the processor would guess wrong, so that it waits for many accesses to memory at once.
    int64_t num_doubtful = 0;
    for (int64_t j = 0; j < num_left; ++j) {
      const int64_t k = negatives[j];
      items[k] = static_cast<int32_t>((words[j] * static_cast<uint64_t>(num_items_)) >> 32);
      negatives[num_doubtful] = k;
      num_doubtful += MayHaveRated(users[k], items[k]);
    }
    num_left = 0;
    for (int64_t j = 0; j < num_doubtful; ++j) {
      const int64_t k = negatives[j];
      negatives[num_left] = k;
      num_left += HasRated(users[k], items[k]);
    }
  }
}

bool TrainSampler::HasRated(int32_t user, int32_t item) const {
  if (filters_[user].mask == kExact) return MayHaveRated(user, item);
  const absl::Span<const int32_t> rated = ratings_.TrainItems(user);
  return std::binary_search(rated.begin(), rated.end(), item);
}

}  // namespace official::recommendation
