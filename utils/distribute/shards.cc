#include "utils/distribute/shards.h"

#include <algorithm>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "utils/compute/core/status.h"

namespace official::distribute {
namespace {

absl::Status CheckPositive(absl::string_view argument, int64_t value) {
  if (value >= 1) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("Argument `", argument, "` must be positive. Received: ", value));
}

// Returns where the next part of a name, behind a slash, begins; npos if there is none.
size_t NextPart(const std::string& name, size_t begin) {
  const size_t slash = name.find('/', begin);
  return slash == std::string::npos ? slash : slash + 1;
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

absl::StatusOr<Partitioner> ParsePartitioner(absl::string_view text, int num_servers) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, ':');
  std::vector<int64_t> numbers(parts.size() - 1);
  bool is_right = true;
  for (size_t i = 0; i < numbers.size(); ++i) {
    is_right = is_right && absl::SimpleAtoi(parts[1 + i], &numbers[i]) && numbers[i] >= 1;
  }
  if (is_right && parts[0] == "fixed_size" && numbers.size() == 1) return FixedShardsPartitioner(numbers[0]);
  if (is_right && parts[0] == "min_size" && numbers.size() == 1) return MinSizePartitioner(numbers[0], num_servers);
  if (is_right && parts[0] == "min_size" && numbers.size() == 2) return MinSizePartitioner(numbers[0], numbers[1]);
  if (is_right && parts[0] == "max_size" && numbers.size() == 1) return MaxSizePartitioner(numbers[0]);
  if (is_right && parts[0] == "max_size" && numbers.size() == 2) return MaxSizePartitioner(numbers[0], numbers[1]);
  return absl::InvalidArgumentError(
      "needs fixed_size:SHARDS, min_size:BYTES[:MAX_SHARDS] or max_size:BYTES[:MAX_SHARDS], with numbers of at least "
      "1, such as fixed_size:2");
}

absl::StatusOr<int64_t> NumShards(const Partitioner& partitioner, const compute::VariableSpec& variable) {
  if (partitioner == nullptr || variable.type.shape.rank() == 0) return 1;
  const int64_t num_rows = variable.type.shape.dim(0), num_shards = partitioner(variable.type);
  if (num_shards >= 1 && num_shards <= std::max<int64_t>(1, num_rows)) return num_shards;
  return absl::InvalidArgumentError(absl::StrCat("the partitioner must return a number of shards from 1 to the ",
                                                 num_rows, " rows of variable ", variable.name, ", got: ", num_shards));
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
  // The longest name first: in front of another one can be the name of a variable.
  for (size_t begin = 0; begin != std::string::npos; begin = NextPart(name, begin)) {
    for (size_t end = name.rfind('/'); end != std::string::npos && end > begin; end = name.rfind('/', end - 1)) {
      const std::string of = name.substr(begin, end - begin);
      const auto found = names_.find(of);
      if (found == names_.end()) continue;
      if (found->second.variable == of) return {name};  // it is whole
      return {absl::StrCat(name.substr(0, begin), found->second.variable, name.substr(end)), found->second.number};
    }
  }
  return {name};
}

}  // namespace official::distribute
