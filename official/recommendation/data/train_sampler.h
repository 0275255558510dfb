// The examples that NeuMF is trained on: every rating, and items that the user did not rate as negatives, drawn afresh
// in every epoch. An example is a pure function of (ratings, seed, position), so any thread, device or resumed run can
// make any part of any epoch, with the same bits.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "official/recommendation/data/ratings.h"
#include "utils/data/permutation.h"

namespace official::recommendation {

class TrainSampler {
 public:
  // `ratings` must outlive it. InvalidArgument if num_negatives is negative, or if some user's training items are all
  // items there are, so that no negative can be drawn.
  static absl::StatusOr<std::unique_ptr<TrainSampler>> Create(const Ratings& ratings, int num_negatives, uint64_t seed);

  // Of one epoch: each of the P training ratings and num_negatives negatives for it.
  int64_t num_examples() const { return num_examples_; }
  uint64_t seed() const { return seed_; }

  // Writes the examples at positions [begin, end) of the training run: position p is the p mod num_examples()-th
  // example of epoch p / num_examples(). So the batch of step s is [s * batch_size, (s + 1) * batch_size), and what
  // does not fill a batch at the end of an epoch begins the next one's, as in the official pipeline.
  //   users, items  [end - begin]
  //   labels        [end - begin], 1 if the user rated the item, else 0. The item held out for evaluation can be drawn
  //                 as a negative (upstream: it is not among the user's training items).
  // Each epoch has its own order: a random permutation of all its examples. Threads may call it at once.
  void Fill(int64_t begin, int64_t end, int32_t* users, int32_t* items, float* labels) const;

 private:
  TrainSampler(const Ratings& ratings, int num_negatives, uint64_t seed);
  // The same within one epoch, for at most kBlock examples from `begin` on.
  void FillBlock(const data::Permutation& order, int64_t epoch, int64_t begin, int64_t n, int32_t* users,
                 int32_t* items, float* labels) const;
  // False only if the user did not rate the item.
  bool MayHaveRated(int32_t user, int32_t item) const {
    const Filter& filter = filters_[user];
    const uint32_t bit = static_cast<uint32_t>(item) & filter.mask;
    return filter_words_[filter.begin + bit / 64] >> bit % 64 & 1;
  }
  bool HasRated(int32_t user, int32_t item) const;

  static constexpr int64_t kBlock = 256;

  const Ratings& ratings_;
  const int num_negatives_;
  const int32_t num_items_;
  const uint64_t seed_, key_;
  const int64_t num_examples_;
  struct Positive {
    int32_t user, item;
  };
  std::vector<Positive> positives_;  // [P]
  // Bits for each user: number item & mask is set if the user rated the item, and few others are. So most items that
  // are drawn are found not to be rated with one access to memory.
  struct Filter {
    int64_t begin;  // in filter_words_
    uint32_t mask;  // kExact: there is a bit for each item
  };
  static constexpr uint32_t kExact = ~uint32_t{0};
  std::vector<Filter> filters_;  // [U]
  std::vector<uint64_t> filter_words_;
};

}  // namespace official::recommendation
