// DistributedDataset: batches for the replicas of a strategy, one step at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
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

// Divides the batches of `source`, each of the global batch of all replicas, among the replicas: strategy's
// experimental_distribute_dataset. Every worker reads the whole source. `strategy` must outlive the result.
// InvalidArgument if workers have different numbers of replicas, or global_batch_size is below 1.
absl::StatusOr<DistributedDatasetPtr> DistributeDataset(Strategy& strategy, data::BatchSourcePtr source,
                                                        int64_t global_batch_size);

// tf.distribute.InputContext.
struct InputContext {
  int num_input_pipelines;  // the number of workers
  int input_pipeline_id;    // of this worker
  int num_replicas_in_sync;

  // Returns global_batch_size / num_replicas_in_sync. InvalidArgument if it is not a whole number.
  absl::StatusOr<int64_t> GetPerReplicaBatchSize(int64_t global_batch_size) const;
};
using DatasetFn = std::function<absl::StatusOr<data::BatchSourcePtr>(const InputContext& context)>;

// Gives the batches of the source that `fn` makes for this worker to its replicas as they are, one to each in turn:
// strategy.distribute_datasets_from_function. `strategy` must outlive the result. Errors: those of `fn`.
absl::StatusOr<DistributedDatasetPtr> DistributeDatasetsFromFunction(Strategy& strategy, const DatasetFn& fn);

}  // namespace official::distribute
