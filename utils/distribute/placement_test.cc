#include "utils/distribute/placement.h"

#include <catch2/catch.hpp>

namespace official::distribute {
namespace {

TEST_CASE("Variables are placed in turn, or where the fewest bytes are") {
  const std::vector<int64_t> num_bytes = {8, 100, 4, 4, 100, 4};
  CHECK(PlaceVariables(Placement::kRoundRobin, num_bytes, 2) == std::vector<int>{0, 1, 0, 1, 0, 1});
  CHECK(PlaceVariables(Placement::kRoundRobin, num_bytes, 1) == std::vector<int>(6));
  // The rule of TensorFlow 1.15's GreedyLoadBalancingStrategy: numpy.argmin of the loads.
  CHECK(PlaceVariables(Placement::kGreedy, num_bytes, 2) == std::vector<int>{0, 1, 0, 0, 0, 1});
  CHECK(PlaceVariables(Placement::kGreedy, num_bytes, 3) == std::vector<int>{0, 1, 2, 2, 0, 2});
  CHECK(PlaceVariables(Placement::kGreedy, {4, 4, 4, 4}, 3) == std::vector<int>{0, 1, 2, 0});
}

}  // namespace
}  // namespace official::distribute
