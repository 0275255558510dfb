#include "utils/distribute/custom_loop/distributed_dataset.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/logs/log.h"

namespace official::distribute {
namespace {

using compute::Tensor;

// Rows [begin, end) of the first dimension, which keep the tensor alive.
Tensor Rows(const Tensor& tensor, int64_t begin, int64_t end) {
  compute::TensorType type = tensor.type();
  const int64_t row_bytes = type.num_bytes() / std::max<int64_t>(1, type.shape.dim(0));
  type.shape.set_dim(0, end - begin);
  const auto owner = std::make_shared<Tensor>(tensor);
  return Tensor(type, static_cast<char*>(tensor.raw_data()) + begin * row_bytes, owner);
}

class RebatchedDataset : public DistributedDataset {
 public:
  RebatchedDataset(Strategy& strategy, data::BatchSourcePtr source, int64_t global_batch_size)
      : strategy_(strategy), source_(std::move(source)), global_batch_size_(global_batch_size) {}

  absl::StatusOr<std::optional<DistributedBatch>> Next() override {
    ASSIGN_OR_RETURN(const std::optional<data::Batch> batch, source_->Next());
    if (!batch) return std::nullopt;
    const std::vector<int64_t> sizes =
        ReplicaBatchSizes(batch->num_examples, global_batch_size_, strategy_.num_replicas_in_sync(),
                          strategy_.num_local_replicas(), step_++);
    DistributedBatch result;
    const auto divide = [&](const data::Tensors& tensors, std::vector<PerReplica>& divided) {
      for (const Tensor& tensor : tensors) {
        PerReplica& value = divided.emplace_back();
        int64_t begin = 0;
        for (int64_t r = 0; r < strategy_.local_replicas().end; begin += sizes[r++]) {
          if (r >= strategy_.local_replicas().begin) value.values.push_back(Rows(tensor, begin, begin + sizes[r]));
        }
      }
    };
    divide(batch->features, result.features);
    divide(batch->labels, result.labels);
    return result;
  }

 private:
  Strategy& strategy_;
  const data::BatchSourcePtr source_;
  const int64_t global_batch_size_;
  int64_t step_ = 0;
};

// Batches of other sizes, of the examples of a source of batches: unbatch, then batch.
class Rebatcher {
 public:
  explicit Rebatcher(data::BatchSourcePtr source) : source_(std::move(source)) {}
  const data::ElementSpec& spec() const { return source_->spec(); }

  // Returns the next `size` examples, fewer at the end; nothing if none are left.
  absl::StatusOr<std::optional<data::Batch>> Next(int64_t size) {
    ASSIGN_OR_RETURN(bool has_more, HasMore());
    if (!has_more) return std::nullopt;
    std::vector<data::Batch> parts;
    do {
      const int64_t end = std::min(at_ + size, batch_.num_examples);
      data::Batch& part = parts.emplace_back();
      part.num_examples = end - at_;
      for (const Tensor& tensor : batch_.features) part.features.push_back(Rows(tensor, at_, end));
      for (const Tensor& tensor : batch_.labels) part.labels.push_back(Rows(tensor, at_, end));
      size -= part.num_examples;
      at_ = end;
      if (size > 0) {
        ASSIGN_OR_RETURN(has_more, HasMore());
      }
    } while (size > 0 && has_more);
    if (parts.size() == 1) return std::move(parts[0]);
    data::Batch joined;
    RETURN_IF_ERROR(Join(parts, &data::Batch::features, joined));
    RETURN_IF_ERROR(Join(parts, &data::Batch::labels, joined));
    for (const data::Batch& part : parts) joined.num_examples += part.num_examples;
    return joined;
  }

 private:
  // Reads on if all examples of batch_ are taken.
  absl::StatusOr<bool> HasMore() {
    if (at_ < batch_.num_examples) return true;
    ASSIGN_OR_RETURN(std::optional<data::Batch> next, source_->Next());
    if (!next) return false;
    batch_ = *std::move(next);
    at_ = 0;
    return true;
  }
  static absl::Status Join(const std::vector<data::Batch>& parts, data::Tensors data::Batch::*tensors,
                           data::Batch& joined) {
    for (size_t i = 0; i < (parts[0].*tensors).size(); ++i) {
      std::vector<Tensor> of_parts;
      for (const data::Batch& part : parts) of_parts.push_back((part.*tensors)[i]);
      ASSIGN_OR_RETURN(Tensor tensor, ConcatTensors(of_parts, /*axis=*/0));
      (joined.*tensors).push_back(std::move(tensor));
    }
    return absl::OkStatus();
  }

  const data::BatchSourcePtr source_;
  data::Batch batch_;  // from which examples [at_, num_examples) are left
  int64_t at_ = 0;
};

// What each worker reads by itself, until the data of all have ended.
class DatasetOfWorker : public DistributedDataset {
 public:
  // Returns the batch of the next local replica, or nothing after the last.
  using NextFn = std::function<absl::StatusOr<std::optional<data::Batch>>()>;
  DatasetOfWorker(Strategy& strategy, data::ElementSpec spec, NextFn next)
      : strategy_(strategy), spec_(std::move(spec)), next_(std::move(next)) {}

  absl::StatusOr<std::optional<DistributedBatch>> Next() override {
    DistributedBatch result;
    result.features.resize(spec_.features.size());
    result.labels.resize(spec_.labels.size());
    std::vector<int64_t> has_data(strategy_.num_local_replicas());
    for (int64_t& has : has_data) {
      ASSIGN_OR_RETURN(const std::optional<data::Batch> batch, next_());
      has = batch.has_value();
      Append(spec_.features, batch ? &batch->features : nullptr, result.features);
      Append(spec_.labels, batch ? &batch->labels : nullptr, result.labels);
    }
    ASSIGN_OR_RETURN(has_data, strategy_.Gather(std::move(has_data)));
    if (std::count(has_data.begin(), has_data.end(), 0) == static_cast<int64_t>(has_data.size())) return std::nullopt;
    return result;
  }

 private:
  // Appends the tensors of one replica, or those of a batch without examples.
  static void Append(const std::vector<data::Leaf>& leaves, const data::Tensors* tensors,
                     std::vector<PerReplica>& values) {
    for (size_t i = 0; i < leaves.size(); ++i) {
      values[i].values.push_back(tensors != nullptr ? (*tensors)[i] : Tensor(data::BatchedType(leaves[i].type, 0)));
    }
  }

  Strategy& strategy_;
  const data::ElementSpec spec_;
  const NextFn next_;
};

absl::Status CheckSameNumbersOfReplicas(const Strategy& strategy) {
  for (const compute::Share& replicas : strategy.replicas_of_workers()) {
    if (replicas.size() == strategy.num_local_replicas()) continue;
    return absl::InvalidArgumentError(absl::StrCat("the workers have different numbers of replicas, ",
                                                   strategy.num_local_replicas(), " and ", replicas.size(),
                                                   "; to divide a data set among them, give all as many"));
  }
  return absl::OkStatus();
}

// Returns the data set that this worker reads, and changes kAuto into the policy by which it is.
absl::StatusOr<data::DatasetPtr> AutoShard(const Strategy& strategy, const data::DatasetPtr& dataset,
                                           data::AutoShardPolicy& policy) {
  using enum data::AutoShardPolicy;
  const auto num_workers = static_cast<int>(strategy.replicas_of_workers().size());
  if (policy == kHint) return data::ShardByHint(dataset, num_workers, strategy.worker());
  RETURN_IF_ERROR(data::CheckNoShardHint(dataset));
  if (policy == kOff || policy == kData || (policy == kFile && num_workers == 1)) return dataset;
  absl::StatusOr<data::DatasetPtr> by_file = data::ShardByFile(dataset, num_workers, strategy.worker());
  if (policy == kFile || !absl::IsNotFound(by_file.status())) {
    policy = kFile;
    return by_file;
  }
  policy = kData;
  if (num_workers > 1 && strategy.is_chief()) {
    LOG(WARNING) << "AUTO sharding policy will apply DATA sharding policy as it failed to apply FILE sharding policy "
                    "because of the following reason: "
                 << by_file.status().message();
  }
  return dataset;
}

}  // namespace

std::vector<DistributedValue> DistributedBatch::Arguments() const {
  std::vector<DistributedValue> arguments(features.begin(), features.end());
  arguments.insert(arguments.end(), labels.begin(), labels.end());
  return arguments;
}

std::vector<int64_t> ReplicaBatchSizes(int64_t num_examples, int64_t global_batch_size, int num_replicas,
                                       int replicas_per_worker, int64_t step) {
  std::vector<int64_t> sizes;
  if (num_examples == global_batch_size) {
    const int64_t floor = num_examples / num_replicas, larger = num_examples % num_replicas;
    for (int r = 0; r < num_replicas; ++r) {
      sizes.push_back(floor + ((r + step * replicas_per_worker) % num_replicas < larger ? 1 : 0));
    }
    return sizes;
  }
  const int64_t most = (num_examples + num_replicas - 1) / num_replicas;
  for (int64_t left = num_examples; static_cast<int>(sizes.size()) < num_replicas; left -= sizes.back()) {
    sizes.push_back(std::min(most, left));
  }
  return sizes;
}

absl::StatusOr<DistributedDatasetPtr> DistributeDataset(Strategy& strategy, data::BatchSourcePtr source,
                                                        int64_t global_batch_size) {
  if (global_batch_size < 1) {
    return absl::InvalidArgumentError(absl::StrCat("the global batch size is ", global_batch_size,
                                                   "; it must be at "
                                                   "least 1"));
  }
  RETURN_IF_ERROR(CheckSameNumbersOfReplicas(strategy));
  return std::make_unique<RebatchedDataset>(strategy, std::move(source), global_batch_size);
}

absl::StatusOr<DistributedDatasetPtr> DistributeDataset(Strategy& strategy, const data::DatasetPtr& dataset,
                                                        const data::BatchOptions& batches,
                                                        const DistributeOptions& options) {
  RETURN_IF_ERROR(CheckSameNumbersOfReplicas(strategy));
  data::AutoShardPolicy policy = options.auto_shard_policy;
  ASSIGN_OR_RETURN(data::DatasetPtr sharded, AutoShard(strategy, dataset, policy));
  if (sharded->num_examples() == 0 && dataset->num_examples() > 0) {
    // An error here would leave the other workers waiting for this one.
    return std::make_unique<DatasetOfWorker>(strategy, dataset->spec(), [] { return std::optional<data::Batch>(); });
  }
  ASSIGN_OR_RETURN(data::BatchSourcePtr source, data::Batches(std::move(sharded), batches));
  if (policy == data::AutoShardPolicy::kData) return DistributeDataset(strategy, std::move(source), batches.batch_size);
  // The sizes of a global batch's parts, those of this worker's replicas first.
  std::vector<int64_t> sizes = ReplicaBatchSizes(batches.batch_size, batches.batch_size,
                                                 strategy.num_replicas_in_sync(), strategy.num_local_replicas(), 0);
  std::rotate(sizes.begin(), sizes.begin() + strategy.local_replicas().begin, sizes.end());
  data::ElementSpec spec = source->spec();
  const auto rebatcher = std::make_shared<Rebatcher>(std::move(source));
  return std::make_unique<DatasetOfWorker>(strategy, std::move(spec), [rebatcher, sizes, next = size_t{0}]() mutable {
    return rebatcher->Next(sizes[next++ % sizes.size()]);
  });
}

absl::StatusOr<int64_t> InputContext::GetPerReplicaBatchSize(int64_t global_batch_size) const {
  if (global_batch_size % num_replicas_in_sync == 0) return global_batch_size / num_replicas_in_sync;
  return absl::InvalidArgumentError(absl::StrCat("The `global_batch_size` ", global_batch_size,
                                                 " is not divisible by `num_replicas_in_sync` ", num_replicas_in_sync,
                                                 " "));
}

absl::StatusOr<DistributedDatasetPtr> DistributeDatasetsFromFunction(Strategy& strategy, const DatasetFn& fn) {
  ASSIGN_OR_RETURN(data::BatchSourcePtr source,
                   fn({.num_input_pipelines = static_cast<int>(strategy.replicas_of_workers().size()),
                       .input_pipeline_id = strategy.worker(),
                       .num_replicas_in_sync = strategy.num_replicas_in_sync()}));
  const std::shared_ptr<data::BatchSource> shared = std::move(source);
  return std::make_unique<DatasetOfWorker>(strategy, shared->spec(), [shared] { return shared->Next(); });
}

}  // namespace official::distribute
