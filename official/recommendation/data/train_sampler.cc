#include "official/recommendation/data/train_sampler.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/strings/str_format.h"
#include "utils/compute/core/random.h"
#include "utils/compute/cpu/philox_block.h"
#include "utils/compute/cpu/simd.h"
#include "utils/logs/task_progress.h"

namespace official::recommendation {
namespace {

constexpr int64_t kDraws = 64;       // of Philox, at once
constexpr int64_t kFilterBits = 16;  // at least, for each of a user's ratings
// If a bit for each user and item takes no more words than this, that is fast enough, and there are no doubts.
constexpr int64_t kSmallFilter = 1 << 20;

int64_t NumWords(int64_t bits) { return (bits + 63) / 64; }

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
  const logs::TaskProgress progress({.title = "preparing to draw negatives"});
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
      first_ratings_(ratings.num_positives() / 64 + 1),
      all_exact_(ratings.num_users() * NumWords(num_items_) <= kSmallFilter),
      filters_(ratings.num_users()) {
  int64_t num_words = 0;
  for (int32_t user = 0; user < ratings.num_users(); ++user) {
    const int64_t first = ratings.offsets[user];
    first_ratings_[first / 64].bits |= uint64_t{1} << first % 64;
    const int64_t bits = std::bit_ceil(std::max<uint64_t>(64, ratings.TrainItems(user).size() * kFilterBits));
    const bool exact = all_exact_ || bits >= num_items_;
    filters_[user] = {static_cast<uint32_t>(num_words), exact ? kExact : static_cast<uint32_t>(bits - 1)};
    num_words += NumWords(exact ? num_items_ : bits);
  }
  int32_t last = -1;
  for (FirstRatings& first : first_ratings_) {
    first.user_before = last;
    last += std::popcount(first.bits);
  }
  filter_.resize(num_words);
  for (int32_t user = 0; user < ratings.num_users(); ++user) {
    for (const int32_t item : ratings.TrainItems(user)) {
      const uint64_t bit = FilterBit(user, item);
      filter_[bit / 64] |= uint64_t{1} << bit % 64;
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

// Passes over the block, each without branches that the processor would guess wrong; what one reads of memory at random
// was fetched before it.
void TrainSampler::FillBlock(const data::Permutation& order, int64_t epoch, int64_t begin, int64_t n, int32_t* users,
                             int32_t* items, float* labels) const {
  // Example e is for rating e / (1 + num_negatives): itself, then its negatives.
  int64_t examples[kBlock];
  uint64_t ratings[kBlock];
  order.Map(begin, n, examples);
  compute::WithSimd([&] {
    const int64_t count = n, each = 1 + num_negatives_;
    // Exact below 2^50 examples: the half keeps the quotient away from whole numbers.
    const double reciprocal = 1.0 / static_cast<double>(each);
    for (int64_t k = 0; k < count; ++k) {
      const auto rating = static_cast<int64_t>((static_cast<double>(examples[k]) + 0.5) * reciprocal);
      ratings[k] = static_cast<uint64_t>(rating);
      labels[k] = examples[k] == rating * each ? 1.0f : 0.0f;
    }
  });
  for (int64_t k = 0; k < n; ++k) __builtin_prefetch(&first_ratings_[ratings[k] / 64]);
  int32_t positives[kBlock], negatives[kBlock] = {};
  int64_t num_positives = 0, num_negatives = 0;
  for (int64_t k = 0; k < n; ++k) {
    users[k] = UserOf(ratings[k]);
    positives[num_positives] = negatives[num_negatives] = static_cast<int32_t>(k);
    num_positives += labels[k] == 1;
    num_negatives += labels[k] == 0;
  }
  const int32_t* const train_items = ratings_.train_items.data();
  for (int64_t j = 0; j < num_positives; ++j) __builtin_prefetch(&train_items[ratings[positives[j]]]);
  for (uint32_t attempt = 0; num_negatives > 0; ++attempt) {
    num_negatives = DrawItems(attempt, epoch, examples, negatives, num_negatives, users, items);
  }
  for (int64_t j = 0; j < num_positives; ++j) items[positives[j]] = train_items[ratings[positives[j]]];
}

int64_t TrainSampler::DrawItems(uint32_t attempt, int64_t epoch, const int64_t* numbers, int32_t* wanted, int64_t n,
                                const int32_t* users, int32_t* items) const {
  uint32_t drawn[kBlock];
  compute::WithSimd([&] {
    const uint64_t num_items = static_cast<uint32_t>(num_items_);
    for (int64_t first = 0; first < n; first += kDraws) {
      uint32_t words[4][kDraws];
      for (int64_t d = 0; d < kDraws; ++d) {
        const int64_t number = numbers[wanted[first + d]];
        words[0][d] = attempt;
        words[1][d] = static_cast<uint32_t>(epoch);
        words[2][d] = static_cast<uint32_t>(number);
        words[3][d] = static_cast<uint32_t>(number >> 32);
      }
      compute::PhiloxBlock(key_, words);
      for (int64_t d = 0; d < kDraws; ++d) drawn[first + d] = static_cast<uint32_t>(words[0][d] * num_items >> 32);
    }
  });
  uint64_t bits[kBlock];
  for (int64_t j = 0; j < n; ++j) {
    const int32_t k = wanted[j];
    items[k] = static_cast<int32_t>(drawn[j]);
    bits[j] = FilterBit(users[k], items[k]);
    __builtin_prefetch(&filter_[bits[j] / 64]);
  }
  const uint64_t* const filter = filter_.data();
  int64_t left = 0;
  for (int64_t j = 0; j < n; ++j) {
    wanted[left] = wanted[j];
    left += filter[bits[j] / 64] >> bits[j] % 64 & 1;
  }
  if (all_exact_) return left;
  const int64_t doubtful = std::exchange(left, 0);
  for (int64_t j = 0; j < doubtful; ++j) {
    const int32_t k = wanted[j];
    wanted[left] = k;
    left += HasRated(users[k], items[k]);
  }
  return left;
}

bool TrainSampler::HasRated(int32_t user, int32_t item) const {
  if (filters_[user].mask == kExact) return true;
  const absl::Span<const int32_t> rated = ratings_.TrainItems(user);
  return std::binary_search(rated.begin(), rated.end(), item);
}

}  // namespace official::recommendation
