// AutoShardPolicy divides the examples of a data set among workers, as tf.data does it: Dataset.shard and the policies
// of tf.data.experimental.AutoShardPolicy, which rewrite a pipeline behind its batches.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "utils/data/dataset.h"

namespace official::data {

enum class AutoShardPolicy {
  kOff,   // every worker reads everything
  kAuto,  // kFile if the source has files, else kData
  kFile,  // worker w of W reads files w, w + W, ... of the source
  kData,  // every worker reads everything and keeps its part of each global batch
  kHint,  // Shard(dataset, kShardHint, kShardHint) becomes Shard(dataset, W, w)
};

// The source of a pipeline whose examples lie in files. A data set of one's own may be one.
class FileDataset : public Dataset {
 public:
  virtual int num_files() const = 0;
  // Returns the data set of files `index`, `index` + num_shards, ..., 0 <= index < num_shards <= num_files().
  virtual absl::StatusOr<DatasetPtr> ShardFiles(int num_shards, int index) const = 0;
};

// The arguments of a Shard for which AutoShardPolicy::kHint puts the number of workers and that of this worker.
constexpr int kShardHint = -1;

// Returns examples `index`, `index` + num_shards, ... of a data set: tf.data.Dataset.shard. InvalidArgument unless
// 0 <= index < num_shards, or both are kShardHint: then the result has all examples.
absl::StatusOr<DatasetPtr> Shard(DatasetPtr input, int num_shards, int index);

// Returns the pipeline whose source has the files of one shard only, and in which maps and shuffles are as before.
// NotFound if the source has no files; InvalidArgument if they are fewer than the shards.
absl::StatusOr<DatasetPtr> ShardByFile(const DatasetPtr& dataset, int num_shards, int index);

// Returns the pipeline in which every placeholder has these numbers. A pipeline without one stays as it is.
absl::StatusOr<DatasetPtr> ShardByHint(const DatasetPtr& dataset, int num_shards, int index);

// Returns FailedPrecondition if the pipeline has a placeholder, which only AutoShardPolicy::kHint replaces.
absl::Status CheckNoShardHint(const DatasetPtr& dataset);

}  // namespace official::data
