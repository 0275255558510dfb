#include "official/recommendation/ncf_input.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <deque>
#include <functional>
#include <numeric>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "official/recommendation/data/ratings.h"
#include "utils/data/batch.h"

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

TEST_CASE("Batches that are made ahead, and kept, are those made one by one") {
  const Ratings ratings = SplitRatings(DrawRatings()).value();
  std::shared_ptr<const TrainSampler> sampler = TrainSampler::Create(ratings, kNumNeg, /*seed=*/1).value();
  const int64_t batch_size = GENERATE(1000, 40000);  // many batches at a time, and one
  const auto source = TrainBatches(sampler, batch_size, {}, /*end_epoch=*/3);
  const auto ahead = data::Prefetch(TrainBatches(sampler, batch_size, {}, /*end_epoch=*/3), /*depth=*/2);
  std::deque<data::Batch> wanted, kept;
  int64_t num_batches = 0;
  while (const auto batch = ahead->Next().value()) {
    ++num_batches;
    kept.push_back(*batch);
    wanted.push_back(*source->Next().value());
    for (auto* const batches : {&wanted, &kept}) {
      if (batches->size() > 4) batches->pop_front();
    }
    const data::Batch &want = wanted.front(), &got = kept.front();
    REQUIRE(got.next.epoch == want.next.epoch);
    REQUIRE(got.next.index == want.next.index);
    std::vector<int32_t> users(batch_size), items(batch_size);
    std::vector<float> labels(batch_size);
    const int64_t first = std::max<int64_t>(0, num_batches - 4) * batch_size;
    sampler->Fill(first, first + batch_size, users.data(), items.data(), labels.data());
    for (const data::Batch* const of : {&want, &got}) {
      REQUIRE(std::equal(users.begin(), users.end(), of->features[0].data<int32_t>()));
      REQUIRE(std::equal(items.begin(), items.end(), of->features[1].data<int32_t>()));
      REQUIRE(std::equal(labels.begin(), labels.end(), of->labels[0].data<float>()));
    }
  }
  CHECK(num_batches == 3 * sampler->num_examples() / batch_size);
}

TEST_CASE("A worker makes the examples of its replicas only, which are those of the whole batch") {
  const Ratings ratings = SplitRatings(DrawRatings()).value();
  std::shared_ptr<const TrainSampler> sampler = TrainSampler::Create(ratings, kNumNeg, /*seed=*/1).value();
  const int64_t batch_size = 1001;
  const data::HeldRows rows{.replicas = {1, 2}, .num_replicas = 3};
  const compute::Share share = compute::ShareOf(batch_size, 1, 3);
  const auto whole = TrainBatches(sampler, batch_size, {}, /*end_epoch=*/1);
  const auto part = TrainBatches(sampler, batch_size, {}, /*end_epoch=*/1, rows);
  int64_t made = 0;
  while (const auto want = whole->Next().value()) {
    const auto got = part->Next().value();
    REQUIRE(got->num_examples == batch_size);
    const int32_t *const items = got->features[1].data<int32_t>(), *const wanted = want->features[1].data<int32_t>();
    REQUIRE(std::equal(items + share.begin, items + share.end, wanted + share.begin));
    made += std::inner_product(items, items + batch_size, wanted, int64_t{0}, std::plus<>(), std::equal_to<>());
  }
  CHECK(made < sampler->num_examples() / 2);  // the others are zeros, or of an earlier batch
}

TEST_CASE("Where batches are dealt out, a worker makes the examples of its own only") {
  const Ratings ratings = SplitRatings(DrawRatings()).value();
  std::shared_ptr<const TrainSampler> sampler = TrainSampler::Create(ratings, kNumNeg, /*seed=*/1).value();
  const int64_t batch_size = GENERATE(1000, 40000);  // many batches at a time, and one
  const data::Position start = {0, batch_size};
  const auto whole = TrainBatches(sampler, batch_size, start, /*end_epoch=*/3);
  const auto dealt = TrainBatches(sampler, batch_size, start, /*end_epoch=*/3, {.of_batches = 3, .batch = 1});
  int64_t made = 0, all = 0;
  for (int64_t b = 0; const auto want = whole->Next().value(); ++b, all += batch_size) {
    const auto got = dealt->Next().value();
    REQUIRE(got->next == want->next);
    const int32_t *const items = got->features[1].data<int32_t>(), *const wanted = want->features[1].data<int32_t>();
    if (b % 3 == 1) REQUIRE(std::equal(items, items + batch_size, wanted));
    made += std::inner_product(items, items + batch_size, wanted, int64_t{0}, std::plus<>(), std::equal_to<>());
  }
  CHECK(made < all / 2);  // the others are zeros, or of an earlier batch
}

TEST_CASE("With a batch size that leaves the epoch no batch, the next epoch begins") {
  const Ratings ratings = SplitRatings(DrawRatings()).value();
  std::shared_ptr<const TrainSampler> sampler = TrainSampler::Create(ratings, kNumNeg, /*seed=*/1).value();
  const int64_t examples = sampler->num_examples(), batch_size = examples - 5;
  // After many small batches.
  const auto source = TrainBatches(sampler, batch_size, {0, examples - 3}, /*end_epoch=*/3);
  const data::Batch batch = source->Next().value().value();
  CHECK(batch.first == data::Position{1, 0});
  CHECK(batch.next == data::Position{2, 0});
  const data::Batch last = source->Next().value().value();
  CHECK(last.next == data::Position{3, 0});
  CHECK_FALSE(source->Next().value().has_value());
}

}  // namespace
}  // namespace official::recommendation
