// The examples that NeuMF is trained on: every rating, and items that the user did not rate as negatives, drawn again
// in every epoch. An example is a pure function of (ratings, seed, position), so any thread, device or resumed run can
// make any part of any epoch, with the same bits.
#pragma once

#include <bit>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "official/recommendation/data/ratings.h"
#include "utils/data/permutation.h"

namespace official::recommendation {

class TrainSampler {
 public:
  // `ratings` must outlive the sampler. Returns InvalidArgument if num_negatives is negative, or if some user's
  // training items are all items there are, so that no negative can be drawn.
  static absl::StatusOr<std::unique_ptr<TrainSampler>> Create(const Ratings& ratings, int num_negatives, uint64_t seed);

  // The number of examples in one epoch: each of the P training ratings and num_negatives negatives for it.
  int64_t num_examples() const { return num_examples_; }
  uint64_t seed() const { return seed_; }

  // Writes the examples at positions [begin, end) of the training run: position p is the p mod num_examples()-th
  // example of epoch p / num_examples(). So the batch of step s is [s * batch_size, (s + 1) * batch_size), and the
  // examples that do not fill a batch at the end of an epoch begin the first batch of the next, as in the official
  // pipeline.
  //   users, items  [end - begin]
  //   labels        [end - begin], 1 if the user rated the item, else 0. The item held out for evaluation can be drawn
  //                 as a negative (upstream: it is not among the user's training items).
  // Each epoch has its own order: a random permutation of all its examples. Several threads may call it at once.
  void Fill(int64_t begin, int64_t end, int32_t* users, int32_t* items, float* labels) const;

 private:
  TrainSampler(const Ratings& ratings, int num_negatives, uint64_t seed);
  // Does the same within one epoch, for at most kBlock examples from `begin` on.
  void FillBlock(const data::Permutation& order, int64_t epoch, int64_t begin, int64_t n, int32_t* users,
                 int32_t* items, float* labels) const;
  // Draws an item for each of the examples numbers[example], `example` being one of the first `n` of `wanted`. Keeps
  // those in `wanted` whose user has rated the drawn item, and returns their number.
  int64_t DrawItems(uint32_t attempt, int64_t epoch, const int64_t* numbers, int32_t* wanted, int64_t n,
                    const int32_t* users, int32_t* items) const;
  // Returns the user of ratings_.train_items[rating].
  int32_t UserOf(uint64_t rating) const {
    const FirstRatings& first = first_ratings_[rating / 64];
    return first.user_before + std::popcount(first.bits << (63 - rating % 64));
  }
  // Returns the bit of filter_ that is set if the user rated the item, and otherwise usually is not.
  uint64_t FilterBit(int32_t user, int32_t item) const {
    return filters_[user].word * uint64_t{64} + (static_cast<uint32_t>(item) & filters_[user].mask);
  }
  bool HasRated(int32_t user, int32_t item) const;

  static constexpr int64_t kBlock = 1024;

  const Ratings& ratings_;
  const int num_negatives_;
  const int32_t num_items_;
  const uint64_t seed_, key_;
  const int64_t num_examples_;
  // Bits for those of 64 consecutive ratings that are the first of a user, and the last user who begins before them.
  struct FirstRatings {
    uint64_t bits;
    int32_t user_before;
  };
  std::vector<FirstRatings> first_ratings_;  // [P / 64 + 1]
  // Bits for each user: number item & mask is set if the user rated the item, and few others are. So one access to
  // memory shows for most drawn items that they are not rated.
  struct Filter {
    uint32_t word;  // the first, in filter_
    uint32_t mask;  // kExact: there is a bit for each item
  };
  static constexpr uint32_t kExact = ~uint32_t{0};
  const bool all_exact_;
  std::vector<Filter> filters_;  // [U]
  std::vector<uint64_t> filter_;
};

}  // namespace official::recommendation
