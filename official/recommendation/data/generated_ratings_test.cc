#include "official/recommendation/data/generated_ratings.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <functional>
#include <map>
#include <numeric>
#include <set>

#include "absl/strings/str_cat.h"
#include "official/recommendation/data/eval_data.h"
#include "official/recommendation/data/ratings_file.h"
#include "utils/compute/cpu/parallel.h"

namespace official::recommendation {
namespace {

constexpr GeneratorOptions kSmall = {.num_users = 1500, .num_items = 1500, .num_ratings = 120000};

// The share of users whose held-out item is among the ten candidates that score highest.
double HitRate(const Ratings& ratings, const EvalData& eval,
               const std::function<std::vector<float>(int32_t user)>& scores_of) {
  int64_t hits = 0;
  for (int32_t user = 0; user < ratings.num_users(); ++user) {
    const std::vector<float> scores = scores_of(user);
    const absl::Span<const int32_t> candidates = eval.Candidates(user);
    const auto above = std::count_if(candidates.begin() + 1, candidates.end(),
                                     [&](int32_t item) { return scores[item] >= scores[candidates[0]]; });
    hits += above < 10;
  }
  return static_cast<double>(hits) / ratings.num_users();
}

TEST_CASE("As many users, items and ratings as asked for, and no pair twice") {
  const GeneratorOptions options = GENERATE(GeneratorOptions{}, kSmall, (GeneratorOptions{90, 1750, 67500, 4}));
  const std::vector<Rating> ratings = GenerateRatings(options).value();
  REQUIRE(ratings.size() == static_cast<size_t>(options.num_ratings));
  std::map<int32_t, std::set<int32_t>> by_user;
  std::vector<int64_t> by_item(options.num_items + 1);
  for (const Rating& rating : ratings) {
    by_user[rating.user].insert(rating.item);
    ++by_item.at(rating.item);
  }
  REQUIRE(by_user.size() == static_cast<size_t>(options.num_users));
  CHECK(by_user.begin()->first == 1);
  size_t num_pairs = 0;
  for (const auto& [user, items] : by_user) {
    REQUIRE(items.size() >= 20);
    REQUIRE(items.size() <= static_cast<size_t>(options.num_items - 1000));
    num_pairs += items.size();
  }
  CHECK(num_pairs == ratings.size());
  CHECK(by_item[0] == 0);
  CHECK(*std::min_element(by_item.begin() + 1, by_item.end()) >= 1);
}

TEST_CASE("Popularity and activity are skewed as in MovieLens 1M") {
  const std::vector<Rating> ratings = GenerateRatings({}).value();
  std::vector<int64_t> by_user(6041), by_item(3707);
  for (const Rating& rating : ratings) ++by_user[rating.user], ++by_item[rating.item];
  std::sort(by_user.begin(), by_user.end());
  std::sort(by_item.rbegin(), by_item.rend());
  // There: median 96, most 2314; the tenth of the items that is rated most has 43 % of the ratings.
  CHECK(by_user[3021] == Approx(96).margin(25));
  CHECK(by_user.back() == Approx(2314).margin(400));
  CHECK(std::accumulate(by_item.begin(), by_item.begin() + 371, int64_t{0}) / 1000209.0 == Approx(0.43).margin(0.12));
}

TEST_CASE("The same for any number of threads, and other ratings for another seed") {
  compute::SetNumThreads(1);
  const std::vector<Rating> one = GenerateRatings(kSmall).value();
  compute::SetNumThreads(3);
  CHECK(one == GenerateRatings(kSmall).value());
  GeneratorOptions other = kSmall;
  other.seed = 2;
  CHECK(one != GenerateRatings(other).value());
}

TEST_CASE("Who rated what others rated tells far more than popularity") {
  const Ratings ratings = SplitRatings(GenerateRatings(kSmall).value()).value();
  const EvalData eval = MakeEvalData(ratings, {}).value();
  const int32_t n = ratings.num_items();
  std::vector<float> popularity(n), together(int64_t{n} * n);
  for (int32_t user = 0; user < ratings.num_users(); ++user) {
    for (const int32_t item : ratings.TrainItems(user)) {
      ++popularity[item];
      for (const int32_t other : ratings.TrainItems(user)) ++together[int64_t{item} * n + other];
    }
  }
  const double by_popularity = HitRate(ratings, eval, [&](int32_t) { return popularity; });
  const double by_neighbours = HitRate(ratings, eval, [&](int32_t user) {
    std::vector<float> scores(n);
    for (const int32_t rated : ratings.TrainItems(user)) {
      const float* row = together.data() + int64_t{rated} * n;
      for (int32_t item = 0; item < n; ++item) scores[item] += row[item] / popularity[rated];
    }
    return scores;
  });
  CAPTURE(by_popularity, by_neighbours);
  CHECK(by_popularity > 0.02);  // where 0.01 is chance
  CHECK(by_neighbours > 1.6 * by_popularity);
}

TEST_CASE("WriteRatings writes what ReadRatings reads") {
  const std::string path = absl::StrCat(std::getenv("TEST_TMPDIR"), "/generated.csv");
  const std::vector<Rating> ratings = GenerateRatings(kSmall).value();
  REQUIRE(WriteRatings(path, ratings).ok());
  CHECK(ReadRatings(path).value() == ratings);
}

TEST_CASE("Sizes that cannot be are refused") {
  const GeneratorOptions options = GENERATE(
      GeneratorOptions{1500, 1500, 1500 * 20 - 1}, GeneratorOptions{1500, 1500, 1500 * 500 + 1},
      GeneratorOptions{50, 1500, 25000}, GeneratorOptions{1500, 1000, 30000}, GeneratorOptions{-1, 1500, 25000});
  const absl::Status status = GenerateRatings(options).status();
  CHECK(absl::IsInvalidArgument(status));
  CHECK_THAT(std::string(status.message()), Catch::StartsWith("cannot generate "));
}

}  // namespace
}  // namespace official::recommendation
