// Partitioned variables: a variable can be divided along its first dimension into shards, which are variables of their
// own, each on a parameter server. As tf.distribute.experimental.partitioners and ShardedVariable; in TensorFlow 1.x
// tf.fixed_size_partitioner, tf.min_max_variable_partitioner and tf.variable_axis_size_partitioner, in this order.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "utils/compute/core/batch_parts.h"
#include "utils/compute/core/tensor.h"
#include "utils/compute/graph/graph.h"

namespace official::distribute {

// Returns the number of shards of a variable that is no scalar, from 1 to the size of its first dimension.
using Partitioner = std::function<int64_t(const compute::TensorType& variable)>;

// As many shards, but none is empty. InvalidArgument for less than 1, as below.
absl::StatusOr<Partitioner> FixedShardsPartitioner(int64_t num_shards);
// A shard for each `min_shard_bytes`, and one for the rest, up to `max_shards`.
absl::StatusOr<Partitioner> MinSizePartitioner(int64_t min_shard_bytes = 256 << 10, int64_t max_shards = 1);
// Shards of as many rows as fit into `max_shard_bytes`, at least one, but no more than `max_shards`.
absl::StatusOr<Partitioner> MaxSizePartitioner(int64_t max_shard_bytes,
                                               int64_t max_shards = std::numeric_limits<int64_t>::max());
// Returns the partitioner of a text: "fixed_size:SHARDS", "min_size:BYTES" or "max_size:BYTES", the last two also with
// ":MAX_SHARDS". Without it min_size makes no more shards than there are servers, as in TensorFlow's canned Estimators.
// InvalidArgument says what is wanted.
absl::StatusOr<Partitioner> ParsePartitioner(absl::string_view text, int num_servers);

// Returns the number of shards of a variable: 1 for a scalar, and without a partitioner. InvalidArgument, which names
// the variable, if the partitioner returns less than 1 or more than there are rows.
absl::StatusOr<int64_t> NumShards(const Partitioner& partitioner, const compute::VariableSpec& variable);

// Returns the rows of shard `i` of `num_shards` of a variable with so many rows: the first ones have one more.
compute::Share RowsOfShard(int64_t num_rows, int64_t num_shards, int64_t i);

// ShardName: the variable that a shard is a part of, and the shard's number. A whole variable is shard 0 of itself.
struct ShardName {
  std::string variable;
  int number = 0;
  friend bool operator==(const ShardName&, const ShardName&) = default;
};
// Returns "dense/kernel/part_1".
std::string NameOfShard(const std::string& variable, int64_t i);

// ShardNames: the shards that the variables of a server are.
class ShardNames {
 public:
  void Add(const std::string& name, ShardName shard) { names_[name] = std::move(shard); }
  // Returns the shard that a variable is: the one that was added under its name. What an optimizer adds to a shard is a
  // shard, too: "dense/kernel/part_1/Adam" is shard 1 of dense/kernel/Adam, and so it is behind the scope of the
  // optimizer, "train/dense/kernel/part_1/Adam". Others are whole.
  ShardName Find(const compute::VariableSpec& spec) const;

 private:
  std::map<std::string, ShardName> names_;
};

}  // namespace official::distribute
