// Partitioned variables: a variable can be divided along its first dimension into shards, which are variables of their
// own, each on a parameter server. As tf.distribute.experimental.partitioners and ShardedVariable.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>

#include "absl/status/statusor.h"
#include "utils/compute/core/batch_parts.h"
#include "utils/compute/core/tensor.h"
#include "utils/compute/graph/graph.h"

namespace official::coordinator {

// Returns the number of shards of a variable that is no scalar, from 1 to the size of its first dimension.
using Partitioner = std::function<int64_t(const compute::TensorType& variable)>;

// As many shards, but none is empty. InvalidArgument for less than 1, as below.
absl::StatusOr<Partitioner> FixedShardsPartitioner(int64_t num_shards);
// A shard for each `min_shard_bytes`, and one for the rest, up to `max_shards`.
absl::StatusOr<Partitioner> MinSizePartitioner(int64_t min_shard_bytes = 256 << 10, int64_t max_shards = 1);
// Shards of as many rows as fit into `max_shard_bytes`, at least one, but no more than `max_shards`.
absl::StatusOr<Partitioner> MaxSizePartitioner(int64_t max_shard_bytes,
                                               int64_t max_shards = std::numeric_limits<int64_t>::max());

// Returns the rows of shard `i` of `num_shards` of a variable with so many rows: the first ones have one more.
compute::Share RowsOfShard(int64_t num_rows, int64_t num_shards, int64_t i);

// ShardName: the shard that a server's variable is. "dense/kernel/part_1", or what an optimizer adds to it,
// "dense/kernel/part_1/Adam", is shard 1 of dense/kernel or dense/kernel/Adam. Others are shard 0 of themselves.
struct ShardName {
  std::string variable;
  int number = 0;
};
ShardName ParseShardName(const compute::VariableSpec& spec);
std::string NameOfShard(const std::string& variable, int64_t i);

}  // namespace official::coordinator
