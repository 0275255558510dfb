#include "official/recommendation/data/eval_data.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <set>

#include "utils/compute/cpu/parallel.h"

namespace official::recommendation {
namespace {

using Catch::Contains;

// 50 users; number u has rated 2 + u of 1100 items.
Ratings SomeRatings() {
  std::vector<Rating> ratings;
  for (int user = 1; user <= 50; ++user) {
    for (int i = 0; i < 1 + user; ++i) ratings.push_back({user, 1 + (user * 37 + i * i) % 1100, i});
  }
  // So that every item is there.
  for (int item = 1; item <= 60; ++item) ratings.push_back({100, item, item});
  Ratings split = SplitRatings(ratings, 2).value();
  for (int32_t item = split.num_items(); item < 1100; ++item) split.item_ids.push_back(10000 + item);
  return split;
}

TEST_CASE("Each user's candidates are the held-out item and others that the user did not rate") {
  const Ratings ratings = SomeRatings();
  const bool with_replacement = GENERATE(false, true);
  const EvalData eval = MakeEvalData(ratings, {.with_replacement = with_replacement, .seed = 3}).value();
  REQUIRE(eval.num_candidates == 1000);
  REQUIRE(eval.items.size() == 1000u * ratings.num_users());
  std::vector<int> drawn(1100);
  size_t num_repeats = 0;
  for (int32_t user = 0; user < ratings.num_users(); ++user) {
    const absl::Span<const int32_t> candidates = eval.Candidates(user), rated = ratings.TrainItems(user);
    CHECK(candidates[0] == ratings.held_out[user]);
    std::set<int32_t> seen;
    std::vector<int32_t> repeats;
    for (int32_t column = 0; column < 1000; ++column) {
      const int32_t item = candidates[column];
      if (!seen.insert(item).second) repeats.push_back(column);
      if (column == 0) continue;
      ++drawn.at(item);
      REQUIRE(item != ratings.held_out[user]);
      REQUIRE_FALSE(std::binary_search(rated.begin(), rated.end(), item));
    }
    CHECK(eval.Repeats(user) == repeats);
    num_repeats += repeats.size();
  }
  if (with_replacement) {
    // Of 999 draws from about 1070 items 999 - 1070 (1 - (1 - 1 / 1070)^999) = 350 are repeats.
    CHECK(num_repeats / 51.0 == Approx(350).margin(10));
  } else {
    CHECK(num_repeats == 0);
  }
  // An item that nobody rated is drawn by all users alike: 51 * 999 / 1070 = 48 times.
  for (int32_t item = 1000; item < 1100; ++item) CHECK(drawn[item] >= (with_replacement ? 20 : 35));
}

TEST_CASE("The negatives are the same for any number of threads, and others for another seed") {
  const Ratings ratings = SomeRatings();
  compute::SetNumThreads(1);
  const EvalData one = MakeEvalData(ratings, {.with_replacement = true, .seed = 5}).value();
  compute::SetNumThreads(3);
  const EvalData three = MakeEvalData(ratings, {.with_replacement = true, .seed = 5}).value();
  CHECK(one.items == three.items);
  CHECK(one.repeats == three.repeats);
  CHECK(one.repeat_offsets == three.repeat_offsets);
  CHECK(one.items != MakeEvalData(ratings, {.with_replacement = true, .seed = 6}).value().items);
}

TEST_CASE("Negatives that are not there are an error, not an endless search") {
  Ratings ratings = SomeRatings();
  ratings.item_ids.resize(1040);
  // User 100 has rated the most, 60 items.
  const absl::Status status = MakeEvalData(ratings, {.num_negatives = 999}).status();
  CHECK(absl::IsInvalidArgument(status));
  CHECK_THAT(std::string(status.message()), Contains("user 100 has rated 60 of the 1040 items, which leaves 980 to be "
                                                     "drawn as negatives for the evaluation, where 999 are needed; "
                                                     "give --num_eval_negatives=980, or leave this user out"));
  CHECK(MakeEvalData(ratings, {.num_negatives = 980}).value().num_candidates == 981);
  CHECK(MakeEvalData(ratings, {.num_negatives = 980}).value().note.empty());
  CHECK(absl::IsInvalidArgument(MakeEvalData(ratings, {.num_negatives = 981}).status()));

  // Without a wish there are as many as every user has.
  const EvalData fewer = MakeEvalData(ratings, {}).value();
  CHECK(fewer.num_candidates == 981);
  CHECK(fewer.note ==
        "evaluations rank a user's last item among 980 negatives, not 999: user 100 has rated 60 of the 1040 items");
  CHECK(fewer.items == MakeEvalData(ratings, {.num_negatives = 980}).value().items);

  // With replacement as many are drawn, but they are no more different items.
  const EvalData repeated = MakeEvalData(ratings, {.with_replacement = true}).value();
  CHECK(repeated.num_candidates == 1000);
  CHECK(repeated.note ==
        "evaluations rank a user's last item among at most 980 different negatives, of 999 drawn: "
        "user 100 has rated 60 of the 1040 items");
  CHECK(MakeEvalData(ratings, {.num_negatives = 980, .with_replacement = true}).value().note.empty());

  // But no ranking among a handful is made without being asked for.
  std::vector<Rating> most;
  for (int item = 1; item <= 60 + 98; ++item) most.push_back({item <= 60 ? 1 : 2, item, item});
  const Ratings short_of_items = SplitRatings(most).value();
  for (const bool with_replacement : {false, true}) {
    const absl::Status few = MakeEvalData(short_of_items, {.with_replacement = with_replacement}).status();
    CHECK(absl::IsInvalidArgument(few));
    CHECK_THAT(std::string(few.message()), Contains("user 2 has rated 98 of the 158 items, which leaves 60 ") &&
                                               Contains("99 are needed; give --num_eval_negatives=") &&
                                               Contains(with_replacement ? "=999, or" : "=60, or"));
  }
  const EvalData wanted = MakeEvalData(short_of_items, {.num_negatives = 999, .with_replacement = true}).value();
  CHECK(wanted.num_candidates == 1000);
  CHECK_THAT(wanted.note, Contains("among at most 60 different negatives, of 999 drawn: user 2 has rated 98"));

  // With fewer than 10 every item would be one of the first 10.
  for (const int num_left : {9, 10}) {
    std::vector<Rating> short_list;
    for (int item = 1; item <= 25; ++item) short_list.push_back({1, item, item});
    for (int item = num_left + 1; item <= num_left + 25; ++item) short_list.push_back({2, item, item});
    const Ratings ratings = SplitRatings(short_list).value();
    const absl::Status status = MakeEvalData(ratings, {}).status();
    CHECK(absl::IsInvalidArgument(status));
    CHECK_THAT(std::string(status.message()),
               Contains(num_left == 9 ? ": leave this user out, or give ratings of more users and items"
                                      : "; give --num_eval_negatives=10, or leave this user out"));
    // That many draws could be of any number of items.
    const absl::Status repeated = MakeEvalData(ratings, {.num_negatives = 999, .with_replacement = true}).status();
    CHECK(repeated.ok() == (num_left == 10));
    if (num_left == 9) CHECK_THAT(std::string(repeated.message()), Contains("leaves 9 ") && Contains("10 are needed"));
  }

  // One user alone has rated all there is.
  std::vector<Rating> alone;
  for (int i = 1; i <= 30; ++i) alone.push_back({7, i, i});
  const Ratings all = SplitRatings(alone).value();
  for (const bool with_replacement : {false, true}) {
    const absl::Status none = MakeEvalData(all, {.with_replacement = with_replacement}).status();
    CHECK(absl::IsInvalidArgument(none));
    CHECK_THAT(std::string(none.message()), Contains("user 7 has rated 30 of the 30 items, which leaves 0 ") &&
                                                Contains("leave this user out, or give ratings of more users"));
  }
}

}  // namespace
}  // namespace official::recommendation
