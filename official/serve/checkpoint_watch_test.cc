#include "official/serve/checkpoint_watch.h"

#include <catch2/catch.hpp>
#include <vector>

namespace official::serve {
namespace {

const LatestFiles kServed = {"model.ckpt-4", "whole"};

// The looks, of so many at the same files, at which they are opened, which fails.
std::vector<int> FailedTries(CheckpointWatch& watch, const LatestFiles& found, int num_looks) {
  std::vector<int> tries;
  for (int look = 0; look < num_looks; ++look) {
    if (!watch.IsDue(found)) continue;
    watch.Failed();
    tries.push_back(look);
  }
  return tries;
}

TEST_CASE("What is not served yet is opened once, at the first look") {
  CheckpointWatch watch(kServed);
  CHECK_FALSE(watch.IsDue(kServed));
  CHECK_FALSE(watch.IsDue(std::nullopt));
  for (const LatestFiles& next : {LatestFiles{"model.ckpt-4", "replaced"}, LatestFiles{"model.ckpt-5", "whole"}}) {
    REQUIRE(watch.IsDue(next));
    watch.Served();
    CHECK(watch.served() == next);
    CHECK_FALSE(watch.IsDue(next));
  }
  CHECK(CheckpointWatch(std::nullopt).IsDue(kServed));
}

TEST_CASE("What cannot be served is told once, and tried again after 1 look, 2, 4 and so on up to 64") {
  CheckpointWatch watch(kServed);
  const LatestFiles damaged = {"model.ckpt-5", "damaged"};
  CHECK(FailedTries(watch, damaged, 256) == std::vector<int>{0, 1, 3, 7, 15, 31, 63, 127, 191, 255});
  while (!watch.IsDue(damaged)) {
  }
  CHECK_FALSE(watch.Failed());
  REQUIRE(watch.IsDue(LatestFiles{"model.ckpt-6", "damaged"}));
  CHECK(watch.Failed());
}

TEST_CASE("What could not be served is tried at once when its files have changed and are no longer written") {
  CheckpointWatch watch(kServed);
  FailedTries(watch, {"model.ckpt-5", "no index"}, 1000);
  // It grows: each look finds another size.
  const LatestFiles half = {"model.ckpt-5", "half"}, whole = {"model.ckpt-5", "whole"};
  CHECK_FALSE(watch.IsDue(half));
  CHECK_FALSE(watch.IsDue(whole));
  SECTION("and is served") {
    REQUIRE(watch.IsDue(whole));
    watch.Served();
    CHECK(watch.served() == whole);
  }
  SECTION("and if that fails too, the times between tries begin again") {
    CHECK(FailedTries(watch, whole, 8) == std::vector<int>{0, 1, 3, 7});
  }
}

}  // namespace
}  // namespace official::serve
