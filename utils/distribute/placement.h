// Placement: on which of several parameter servers a variable is.
#pragma once

#include <cstdint>
#include <vector>

namespace official::distribute {

// Variables are placed in the order in which they are created. Round robin: in turn, as TensorFlow's
// replica_device_setter places them. Greedy: on the server that has the fewest bytes until then, the first of several,
// as tf.contrib.training.GreedyLoadBalancingStrategy does it with byte_size_load_fn. What an optimizer adds for a
// variable is where that is, and does not count.
enum class Placement { kRoundRobin, kGreedy };

// Returns the server of each variable, by the number of its bytes.
std::vector<int> PlaceVariables(Placement placement, const std::vector<int64_t>& num_bytes, int num_servers);

}  // namespace official::distribute
