#include "official/recommendation/data/train_sampler.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <set>

namespace official::recommendation {
namespace {

using Catch::Contains;

struct Examples {
  std::vector<int32_t> users, items;
  std::vector<float> labels;
  friend bool operator==(const Examples&, const Examples&) = default;
};

Examples Fill(const TrainSampler& sampler, int64_t begin, int64_t end) {
  Examples examples{std::vector<int32_t>(end - begin), std::vector<int32_t>(end - begin),
                    std::vector<float>(end - begin)};
  sampler.Fill(begin, end, examples.users.data(), examples.items.data(), examples.labels.data());
  return examples;
}

// 1000 users and 2000 items, of which a few users have rated most.
Ratings SomeRatings() {
  std::vector<Rating> ratings;
  for (int user = 1; user <= 1000; ++user) {
    const int n = user % 100 == 0 ? 1900 : 20 + user % 30;
    for (int i = 0; i < n; ++i) ratings.push_back({user, 1 + (user * 7919 + i * 101) % 2000, i});
  }
  return SplitRatings(ratings).value();
}

TEST_CASE("An epoch is every training rating once, and as many negatives as wanted for each") {
  const Ratings ratings = SomeRatings();
  const auto sampler = TrainSampler::Create(ratings, 4, /*seed=*/1).value();
  const int64_t n = sampler->num_examples();
  REQUIRE(n == 5 * ratings.num_positives());
  const int64_t epoch = GENERATE(0, 3);
  const Examples examples = Fill(*sampler, epoch * n, (epoch + 1) * n);
  std::multiset<std::pair<int32_t, int32_t>> positives;
  std::map<int32_t, int64_t> num_negatives;
  std::set<std::pair<int32_t, int32_t>> distinct;
  int64_t num_held_out = 0;
  for (int64_t i = 0; i < n; ++i) {
    const int32_t user = examples.users[i], item = examples.items[i];
    const absl::Span<const int32_t> rated = ratings.TrainItems(user);
    REQUIRE(examples.labels[i] == (std::binary_search(rated.begin(), rated.end(), item) ? 1 : 0));
    if (examples.labels[i] == 1) {
      positives.insert({user, item});
    } else {
      ++num_negatives[user];
      distinct.insert({user, item});
      num_held_out += item == ratings.held_out[user];
    }
  }
  std::multiset<std::pair<int32_t, int32_t>> expected;
  for (int32_t user = 0; user < ratings.num_users(); ++user) {
    for (const int32_t item : ratings.TrainItems(user)) expected.insert({user, item});
    REQUIRE(num_negatives[user] == 4 * static_cast<int64_t>(ratings.TrainItems(user).size()));
  }
  CHECK(positives == expected);
  // Users with 20 to 50 ratings of 2000 items draw few items twice; the others must.
  CHECK(distinct.size() > 0.6 * (n - ratings.num_positives()));
  CHECK(num_held_out > 0);
}

TEST_CASE("Nor are negatives rated where there are too many users for a bit for each of them and each item") {
  constexpr int32_t kUsers = 40000, kItems = 2000;
  std::vector<Rating> ratings;
  for (int32_t user = 1; user <= kUsers; ++user) {
    const int32_t n = user % 1000 == 0 ? 1900 : 20;
    for (int32_t i = 0; i < n; ++i) ratings.push_back({user, 1 + (user * 7919 + i * 101) % kItems, i});
  }
  const Ratings split = SplitRatings(ratings).value();
  const auto sampler = TrainSampler::Create(split, 1, /*seed=*/1).value();
  const Examples examples = Fill(*sampler, 0, sampler->num_examples());
  std::vector<int64_t> num_positives(kUsers), num_negatives(kUsers);
  for (size_t i = 0; i < examples.users.size(); ++i) {
    const int32_t user = examples.users[i];
    const absl::Span<const int32_t> rated = split.TrainItems(user);
    REQUIRE(examples.labels[i] == (std::binary_search(rated.begin(), rated.end(), examples.items[i]) ? 1 : 0));
    ++(examples.labels[i] == 1 ? num_positives : num_negatives)[user];
  }
  for (int32_t user = 0; user < kUsers; ++user) {
    REQUIRE(num_positives[user] == static_cast<int64_t>(split.TrainItems(user).size()));
    REQUIRE(num_negatives[user] == num_positives[user]);
  }
}

TEST_CASE("Negatives are uniform over what the user did not rate") {
  // User 1 did not rate items 5 to 14 of 15 and trains on four others, so that there are 11 negatives.
  std::vector<Rating> ratings;
  for (int i = 0; i < 5; ++i) ratings.push_back({1, 1 + i, i});
  for (int i = 0; i < 15; ++i) ratings.push_back({2, 1 + i, i});
  const Ratings split = SplitRatings(ratings, 2).value();
  const auto sampler = TrainSampler::Create(split, 999, /*seed=*/1).value();
  const Examples examples = Fill(*sampler, 0, sampler->num_examples());
  std::vector<int64_t> counts(15);
  for (size_t i = 0; i < examples.users.size(); ++i) counts[examples.items[i]] += examples.users[i] == 0;
  CHECK(counts[0] == 1);
  // 363 expected, with a standard deviation of 18.
  for (int item = 4; item < 15; ++item) CHECK(counts[item] == Approx(4 * 999 / 11.0).margin(90));
}

TEST_CASE("Any split of the positions gives the same bits, across the ends of epochs too") {
  const Ratings ratings = SomeRatings();
  const auto sampler = TrainSampler::Create(ratings, 4, /*seed=*/1).value();
  const int64_t begin = sampler->num_examples() - 1500, end = sampler->num_examples() + 1500;
  const Examples whole = Fill(*sampler, begin, end);
  for (const int64_t size : {1, 7, 256, 1000}) {
    for (int64_t at = begin; at < end; at += size) {
      const int64_t stop = std::min(at + size, end);
      const Examples part = Fill(*sampler, at, stop);
      REQUIRE(std::equal(part.items.begin(), part.items.end(), whole.items.begin() + (at - begin)));
      REQUIRE(std::equal(part.users.begin(), part.users.end(), whole.users.begin() + (at - begin)));
      REQUIRE(std::equal(part.labels.begin(), part.labels.end(), whole.labels.begin() + (at - begin)));
    }
  }
}

TEST_CASE("A seed's examples stay what they are, so that a resumed run continues with them") {
  // Around the end of an epoch, as they have always been.
  const Ratings ratings = SomeRatings();
  const auto sampler = TrainSampler::Create(ratings, 4, /*seed=*/1).value();
  const int64_t end = 2 * sampler->num_examples();
  REQUIRE(end == 2 * 260550);
  const Examples examples = Fill(*sampler, end - 5, end + 5);
  CHECK(examples.users == std::vector<int32_t>{804, 812, 381, 296, 760, 899, 843, 164, 739, 499});
  CHECK(examples.items == std::vector<int32_t>{345, 603, 1255, 1807, 1123, 1017, 1764, 1817, 390, 1787});
  CHECK(examples.labels == std::vector<float>{0, 0, 1, 0, 0, 0, 0, 0, 0, 1});
}

TEST_CASE("Each epoch and each seed has its own order and negatives") {
  const Ratings ratings = SomeRatings();
  const auto sampler = TrainSampler::Create(ratings, 4, /*seed=*/1).value();
  const int64_t n = sampler->num_examples();
  const Examples first = Fill(*sampler, 0, n), second = Fill(*sampler, n, 2 * n);
  CHECK(first == Fill(*TrainSampler::Create(ratings, 4, /*seed=*/1).value(), 0, n));
  CHECK_FALSE(first == Fill(*TrainSampler::Create(ratings, 4, /*seed=*/2).value(), 0, n));
  int64_t same_user = 0, same_pair = 0;
  for (int64_t i = 0; i < n; ++i) {
    same_user += first.users[i] == second.users[i];
    same_pair += first.users[i] == second.users[i] && first.items[i] == second.items[i];
  }
  CHECK(same_user < n / 50);  // heavy users meet by chance
  CHECK(same_pair < n / 1000);
  // The order mixes positives and negatives everywhere.
  for (int64_t i = 0; i + 1000 <= n; i += 1000) {
    const auto positives = std::count(first.labels.begin() + i, first.labels.begin() + i + 1000, 1.0f);
    REQUIRE(positives > 120);
    REQUIRE(positives < 280);
  }
}

TEST_CASE("A user who rated everything cannot have negatives") {
  std::vector<Rating> ratings;
  for (int i = 0; i < 20; ++i) ratings.push_back({8, 1 + i, i});
  ratings.push_back({8, 1, 100});  // the last one, so that item 1 is in training too
  const Ratings split = SplitRatings(ratings).value();
  const absl::Status status = TrainSampler::Create(split, 4, 0).status();
  CHECK(absl::IsInvalidArgument(status));
  CHECK(status.message() ==
        "user 8 has rated all 20 items, so that no negative can be drawn: leave this user out, or set --num_neg=0");
  CHECK(TrainSampler::Create(split, 0, 0).value()->num_examples() == 20);
  CHECK_THAT(std::string(TrainSampler::Create(split, -1, 0).status().message()), Contains("num_neg is -1"));
  // Where the held-out item is the only other one, it is what is drawn.
  ratings.pop_back();
  const Ratings but_one = SplitRatings(ratings).value();
  const auto sampler = TrainSampler::Create(but_one, 1, 0).value();
  const Examples examples = Fill(*sampler, 0, sampler->num_examples());
  for (size_t i = 0; i < examples.items.size(); ++i) {
    REQUIRE((examples.labels[i] == 0) == (examples.items[i] == but_one.held_out[0]));
  }
}

}  // namespace
}  // namespace official::recommendation
