#include "utils/distribute/coordinator/shards.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"

namespace official::coordinator {
namespace {

absl::Status CheckPositive(absl::string_view argument, int64_t value) {
  if (value >= 1) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("Argument `", argument, "` must be positive. Received: ", value));
}

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

absl::StatusOr<Partitioner> FixedShardsPartitioner(int64_t num_shards) {
  RETURN_IF_ERROR(CheckPositive("num_shards", num_shards));
  return [=](const compute::TensorType& variable) {
    return std::max<int64_t>(1, std::min(num_shards, variable.shape.dim(0)));
  };
}

absl::StatusOr<Partitioner> MinSizePartitioner(int64_t min_shard_bytes, int64_t max_shards) {
  RETURN_IF_ERROR(CheckPositive("min_shard_bytes", min_shard_bytes));
  RETURN_IF_ERROR(CheckPositive("max_shards", max_shards));
  return [=](const compute::TensorType& variable) {
    const int64_t shards = CeilDiv(variable.num_bytes(), min_shard_bytes);
    return std::max<int64_t>(1, std::min({variable.shape.dim(0), max_shards, shards}));
  };
}

absl::StatusOr<Partitioner> MaxSizePartitioner(int64_t max_shard_bytes, int64_t max_shards) {
  RETURN_IF_ERROR(CheckPositive("max_shard_bytes", max_shard_bytes));
  RETURN_IF_ERROR(CheckPositive("max_shards", max_shards));
  return [=](const compute::TensorType& variable) {
    const int64_t num_rows = std::max<int64_t>(1, variable.shape.dim(0));
    const int64_t bytes_per_row = std::max<int64_t>(1, variable.num_bytes() / num_rows);
    const int64_t rows = std::max<int64_t>(1, max_shard_bytes / bytes_per_row);
    return std::min(CeilDiv(num_rows, rows), max_shards);
  };
}

compute::Share RowsOfShard(int64_t num_rows, int64_t num_shards, int64_t i) {
  const int64_t rows = num_rows / num_shards, larger = num_rows % num_shards;
  const auto begin = [&](int64_t shard) { return rows * shard + std::min(shard, larger); };
  return {begin(i), begin(i + 1)};
}

std::string NameOfShard(const std::string& variable, int64_t i) { return absl::StrCat(variable, "/part_", i); }

ShardName ShardNames::Find(const compute::VariableSpec& spec) const {
  const std::string& name = spec.name;
  if (const auto found = names_.find(name); found != names_.end()) return found->second;
  // An optimizer counts in scalars for each of its own variables, which are not divided.
  if (spec.type.shape.rank() == 0) return {name};
  for (size_t slash = name.rfind('/'); slash != std::string::npos && slash > 0; slash = name.rfind('/', slash - 1)) {
    const std::string of = name.substr(0, slash);
    const auto found = names_.find(of);
    if (found == names_.end()) continue;
    if (found->second.variable == of) break;  // it is whole
    return {absl::StrCat(found->second.variable, name.substr(slash)), found->second.number};
  }
  return {name};
}

}  // namespace official::coordinator
