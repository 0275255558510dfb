#include "official/resnet/imagenet/shards.h"

#include <algorithm>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "utils/compute/core/status.h"
#include "utils/files/files.h"

namespace official::resnet {
namespace {

// How many files the set has to which `name` belongs; nothing if it is no name of the split's files.
std::optional<int> NumShards(const std::string& name, const std::string& split) {
  const std::vector<std::string> parts = absl::StrSplit(name, '-');
  int shard, num_shards;
  if (parts.size() != 4 || !absl::SimpleAtoi(parts[1], &shard) || !absl::SimpleAtoi(parts[3], &num_shards) ||
      shard < 0 || shard >= num_shards || ShardName(split, shard, num_shards) != name) {
    return std::nullopt;
  }
  return num_shards;
}

}  // namespace

std::string ShardName(const std::string& split, int shard, int num_shards) {
  return absl::StrFormat("%s-%05d-of-%05d", split, shard, num_shards);
}

absl::StatusOr<std::vector<std::string>> FindShards(const std::string& directory, const std::string& split) {
  absl::StatusOr<std::vector<std::string>> names = files::ListDirectory(directory);
  if (!names.ok() && !absl::IsNotFound(names.status())) return names.status();
  std::vector<std::string> found;  // sorted, as ListDirectory gives them
  std::optional<int> num_shards;
  for (const std::string& name : names.ok() ? *names : std::vector<std::string>()) {
    const std::optional<int> of = NumShards(name, split);
    if (!of.has_value()) continue;
    if (num_shards.has_value() && of != num_shards) {
      return absl::DataLossError(
          absl::StrFormat("%s holds two data sets, %s and %s; move one of them away", directory, found.back(), name));
    }
    num_shards = of;
    found.push_back(name);
  }
  if (found.empty()) {
    return absl::NotFoundError(absl::StrFormat(
        "%s has no files %s-*-of-*; name their directory with --data_dir, convert images with "
        "`imagenet_to_tfrecords_main --images_dir=IMAGES --output_dir=%s --split=%s`, or train without data with "
        "--use_synthetic_data",
        directory, split, directory, split));
  }
  for (int shard = 0; shard < *num_shards; ++shard) {
    const std::string name = ShardName(split, shard, *num_shards);
    if (shard < static_cast<int>(found.size()) && found[shard] == name) continue;
    return absl::DataLossError(
        absl::StrFormat("%s is missing %s: it has %d of %d files", directory, name, found.size(), *num_shards));
  }
  for (std::string& name : found) name = files::JoinPath(directory, name);
  return found;
}

}  // namespace official::resnet
