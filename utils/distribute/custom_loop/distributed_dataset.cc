#include "utils/distribute/custom_loop/distributed_dataset.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"

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

class DatasetFromFunction : public DistributedDataset {
 public:
  DatasetFromFunction(Strategy& strategy, data::BatchSourcePtr source)
      : strategy_(strategy), source_(std::move(source)) {}

  absl::StatusOr<std::optional<DistributedBatch>> Next() override {
    const data::ElementSpec& spec = source_->spec();
    DistributedBatch result;
    result.features.resize(spec.features.size());
    result.labels.resize(spec.labels.size());
    std::vector<int64_t> has_data(strategy_.num_local_replicas());
    for (int64_t& has : has_data) {
      ASSIGN_OR_RETURN(const std::optional<data::Batch> batch, source_->Next());
      has = batch.has_value();
      Append(spec.features, batch ? &batch->features : nullptr, result.features);
      Append(spec.labels, batch ? &batch->labels : nullptr, result.labels);
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
  const data::BatchSourcePtr source_;
};

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
  for (const compute::Share& replicas : strategy.replicas_of_workers()) {
    if (replicas.size() == strategy.num_local_replicas()) continue;
    return absl::InvalidArgumentError(absl::StrCat("the workers have different numbers of replicas, ",
                                                   strategy.num_local_replicas(), " and ", replicas.size(),
                                                   "; to divide a data set among them, give all as many"));
  }
  return std::make_unique<RebatchedDataset>(strategy, std::move(source), global_batch_size);
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
  return std::make_unique<DatasetFromFunction>(strategy, std::move(source));
}

}  // namespace official::distribute
