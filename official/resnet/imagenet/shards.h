// The names of a data set that is spread over several files: train-00000-of-01024 and so on.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace official::resnet {

// Returns the name of a file, such as "train-00003-of-01024".
std::string ShardName(const std::string& split, int shard, int num_shards);

// Returns the paths of all files of `split` ("train", "validation") in `directory`, in order. NotFound, with what to
// do, if there is none; DataLoss if some are missing or there are two sets.
absl::StatusOr<std::vector<std::string>> FindShards(const std::string& directory, const std::string& split);

}  // namespace official::resnet
