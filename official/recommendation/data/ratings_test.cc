#include "official/recommendation/data/ratings.h"

#include <catch2/catch.hpp>

#include "utils/logs/captured_log.h"

namespace official::recommendation {
namespace {

TEST_CASE("SplitRatings numbers users and items by first appearance and holds out each user's latest rating") {
  // By hand. User 9 has too few; so item 70 is in no rating that is kept.
  const std::vector<Rating> ratings = {{5, 40, 3}, {5, 30, 9}, {9, 70, 1}, {5, 20, 1},
                                       {2, 30, 1}, {2, 10, 2}, {5, 10, 4}, {2, 40, 2}};
  const Ratings split = SplitRatings(ratings, 3).value();
  CHECK(split.user_ids == std::vector<int32_t>{5, 2});
  CHECK(split.item_ids == std::vector<int32_t>{40, 30, 20, 10});
  CHECK(split.num_users() == 2);
  CHECK(split.num_items() == 4);
  CHECK(split.num_positives() == 5);
  CHECK(split.num_left_out_users == 1);
  CHECK(split.num_left_out_ratings == 1);
  // Of user 2's two latest ratings the last in the file is held out.
  CHECK(split.held_out == std::vector<int32_t>{1, 0});
  CHECK(split.offsets == std::vector<int64_t>{0, 3, 5});
  CHECK(split.train_items == std::vector<int32_t>{0, 2, 3, 1, 3});
  CHECK(split.TrainItems(1) == std::vector<int32_t>{1, 3});
}

TEST_CASE("Sorting the ratings is shown") {
  logs::CapturedTasks log;
  REQUIRE(SplitRatings({{5, 40, 3}, {5, 30, 9}}, 2).ok());
  CHECK_THAT(log.Text(), Catch::Contains("sorting the ratings by user"));
}

TEST_CASE("A user needs as many ratings as wanted") {
  std::vector<Rating> ratings;
  for (int i = 0; i < 20; ++i) ratings.push_back({1, 1 + i, i});
  for (int i = 0; i < 19; ++i) ratings.push_back({2, 1 + i, i});
  const Ratings split = SplitRatings(ratings).value();
  CHECK(split.user_ids == std::vector<int32_t>{1});
  CHECK(split.num_left_out_users == 1);
  CHECK(split.num_left_out_ratings == 19);
  ratings.erase(ratings.begin());
  const absl::Status status = SplitRatings(ratings).status();
  CHECK(absl::IsInvalidArgument(status));
  CHECK(status.message() ==
        "none of the 2 users has 20 ratings, the minimum for keeping a user; the most that one has is 19");
}

TEST_CASE("An item that a user rated twice counts twice") {
  const std::vector<Rating> ratings = {{1, 1, 1}, {1, 1, 2}, {1, 2, 3}, {1, 1, 4}};
  const Ratings split = SplitRatings(ratings, 2).value();
  CHECK(split.train_items == std::vector<int32_t>{0, 0, 1});
  CHECK(split.held_out == std::vector<int32_t>{0});
  CHECK(split.num_left_out_users == 0);
  CHECK(split.num_left_out_ratings == 0);
}

}  // namespace
}  // namespace official::recommendation
