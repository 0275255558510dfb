// DistributedDataset: batches for the replicas of a strategy, one step at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "utils/data/auto_shard.h"
#include "utils/data/batch.h"
#include "utils/distribute/custom_loop/per_replica.h"
#include "utils/distribute/strategy.h"

namespace official::distribute {

// The batches of one step, in the order of the source's spec: of each feature and label those of the local replicas,
// [examples of the replica, ...]. A replica without data has a batch of 0 examples.
struct DistributedBatch {
  std::vector<PerReplica> features, labels;

  // Returns the features, then the labels, as arguments of StrategyScope::Run.
  std::vector<DistributedValue> Arguments() const;
};

class DistributedDataset {
 public:
  virtual ~DistributedDataset() = default;
  // Returns the batches of the next step, or nothing once no replica of any worker has data. With several workers all
  // of them call it at the same point. Errors: those of the source.
  virtual absl::StatusOr<std::optional<DistributedBatch>> Next() = 0;
};
using DistributedDatasetPtr = std::unique_ptr<DistributedDataset>;

// Returns the number of examples that each of `num_replicas` replicas, of all workers, gets of batch number `step`,
// from 0, of `num_examples`. A whole global batch is divided into sizes that differ by at most one, larger ones first;
// with several workers, each of which has replicas_per_worker, the place of the first larger one moves on by so many in
// every step, so that all workers get as much. Of a smaller batch each replica gets num_examples / num_replicas,
// rounded up, until none is left. Source: tensorflow/python/data/experimental/ops/distribute.py, batch_sizes_for_worker
// and _LegacyRebatchDataset.
std::vector<int64_t> ReplicaBatchSizes(int64_t num_examples, int64_t global_batch_size, int num_replicas,
                                       int replicas_per_worker, int64_t step);

// tf.data.experimental.DistributeOptions.
struct DistributeOptions {
  data::AutoShardPolicy auto_shard_policy = data::AutoShardPolicy::kAuto;
};

// Divides the examples of `dataset` among the replicas, in global batches of batches.batch_size:
// strategy.experimental_distribute_dataset(dataset.batch(...)). With kData, and with kAuto where the source has no
// files (several workers are warned of that), the replicas of all workers divide each global batch, as
// ReplicaBatchSizes says. With the other policies a worker divides the examples that it reads among its own replicas:
// in each step these get their parts of a global batch, but it goes through its data alone, across epochs as well, and
// a worker whose data have ended, or whose part of them is empty, goes on with empty batches until those of all have
// ended. Sources: as for ReplicaBatchSizes, and tensorflow/core/grappler/optimizers/data/auto_shard.cc.
//
// `strategy` must outlive the result. InvalidArgument if workers have different numbers of replicas; else errors of
// data::ShardByFile, data::CheckNoShardHint and data::Batches. One worker has nothing to shard by files.
absl::StatusOr<DistributedDatasetPtr> DistributeDataset(Strategy& strategy, const data::DatasetPtr& dataset,
                                                        const data::BatchOptions& batches,
                                                        const DistributeOptions& options = {});

// Divides the batches of `source`, each of the global batch of all replicas, among the replicas, as with
// AutoShardPolicy::kData: every worker reads the whole source. `strategy` must outlive the result. InvalidArgument if
// workers have different numbers of replicas, or global_batch_size is below 1.
absl::StatusOr<DistributedDatasetPtr> DistributeDataset(Strategy& strategy, data::BatchSourcePtr source,
                                                        int64_t global_batch_size);

// tf.distribute.InputContext.
struct InputContext {
  int num_input_pipelines = 1;  // the number of workers
  int input_pipeline_id = 0;    // of this worker
  int num_replicas_in_sync = 1;

  // Returns global_batch_size / num_replicas_in_sync. InvalidArgument if it is not a whole number.
  absl::StatusOr<int64_t> GetPerReplicaBatchSize(int64_t global_batch_size) const;
};
using DatasetFn = std::function<absl::StatusOr<data::BatchSourcePtr>(const InputContext& context)>;

// Gives the batches of the source that `fn` makes for this worker to its replicas as they are, one to each in turn:
// strategy.distribute_datasets_from_function. `strategy` must outlive the result. Errors: those of `fn`.
absl::StatusOr<DistributedDatasetPtr> DistributeDatasetsFromFunction(Strategy& strategy, const DatasetFn& fn);

}  // namespace official::distribute
