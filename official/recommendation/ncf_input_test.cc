#include "official/recommendation/ncf_input.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>
#include <set>
#include <utility>

#include "official/recommendation/data/ratings.h"

namespace official::recommendation {
namespace {

constexpr int kUsers = 1000, kItems = 2000, kRatings = 50000, kNumNeg = 4, kBatchSize = 2048;

using Pair = std::pair<int32_t, int32_t>;  // user, item

// At most kRatings, no pair twice.
std::vector<Rating> DrawRatings() {
  std::mt19937 random(1);
  std::set<Pair> pairs;
  std::vector<Rating> ratings;
  for (int i = 0; i < kRatings; ++i) {
    const Pair pair = {1 + random() % kUsers, 1 + random() % kItems};
    if (pairs.insert(pair).second) ratings.push_back({pair.first, pair.second, static_cast<int64_t>(random() % 1000)});
  }
  return ratings;
}

// Upstream's own test of its pipeline.
TEST_CASE("The first epoch's batches hold all but the last few ratings, and negatives that the user did not rate") {
  const std::vector<Rating> all = DrawRatings();
  const Ratings ratings = SplitRatings(all).value();
  REQUIRE(ratings.num_users() == kUsers);
  REQUIRE(ratings.num_items() == kItems);
  REQUIRE(ratings.num_positives() + kUsers == static_cast<int64_t>(all.size()));
  std::set<Pair> rated;
  for (const Rating& rating : all) rated.insert({rating.user, rating.item});

  std::shared_ptr<const TrainSampler> sampler = TrainSampler::Create(ratings, kNumNeg, /*seed=*/1).value();
  const auto source = TrainBatches(sampler, kBatchSize, {}, /*end_epoch=*/1);
  std::set<Pair> positives, negatives;
  int64_t num_batches = 0;
  while (const auto batch = source->Next().value()) {
    ++num_batches;
    REQUIRE(batch->num_examples == kBatchSize);
    for (int64_t i = 0; i < kBatchSize; ++i) {
      const int32_t user = batch->features[0].data<int32_t>()[i], item = batch->features[1].data<int32_t>()[i];
      const Pair pair = {ratings.user_ids[user], ratings.item_ids[item]};
      const bool is_rated = rated.count(pair) == 1;
      if (batch->labels[0].data<float>()[i] == 1) {
        REQUIRE(is_rated);
        positives.insert(pair);
      } else {
        // The held-out item may be drawn: it is not trained on.
        REQUIRE((!is_rated || item == ratings.held_out[user]));
        negatives.insert(pair);
      }
    }
  }
  CHECK(num_batches == ratings.num_positives() * (1 + kNumNeg) / kBatchSize);
  CHECK(ratings.num_positives() - static_cast<int64_t>(positives.size()) < kBatchSize);
  CHECK(static_cast<double>(negatives.size()) / kNumNeg / static_cast<double>(positives.size()) > 0.9);
}

}  // namespace
}  // namespace official::recommendation
