#include "utils/data/auto_shard.h"

#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"

namespace official::data {
namespace {

class ShardDataset : public Dataset {
 public:
  ShardDataset(DatasetPtr input, int num_shards, int index)
      : input_(std::move(input)), num_shards_(num_shards), index_(index) {}
  const ElementSpec& spec() const override { return input_->spec(); }
  int64_t num_examples() const override {
    return is_placeholder() ? input_->num_examples()
                            : (input_->num_examples() - index_ + num_shards_ - 1) / num_shards_;
  }
  absl::Status Read(int64_t epoch, int64_t index, const Example& out) const override {
    return input_->Read(epoch, is_placeholder() ? index : index_ + index * num_shards_, out);
  }
  DatasetPtr input() const override { return input_; }
  DatasetPtr WithInput(DatasetPtr input) const override {
    return std::make_shared<ShardDataset>(std::move(input), num_shards_, index_);
  }

  bool is_placeholder() const { return num_shards_ == kShardHint; }

 private:
  DatasetPtr input_;
  int num_shards_, index_;
};

bool IsPlaceholder(const Dataset& dataset) {
  const auto* const shard = dynamic_cast<const ShardDataset*>(&dataset);
  return shard != nullptr && shard->is_placeholder();
}

// Returns the pipeline with what `replace` returns for its source.
absl::StatusOr<DatasetPtr> WithSource(const DatasetPtr& dataset,
                                      absl::FunctionRef<absl::StatusOr<DatasetPtr>(const DatasetPtr& source)> replace) {
  if (dataset->input() == nullptr) return replace(dataset);
  ASSIGN_OR_RETURN(DatasetPtr input, WithSource(dataset->input(), replace));
  return dataset->WithInput(std::move(input));
}

}  // namespace

absl::StatusOr<DatasetPtr> Shard(DatasetPtr input, int num_shards, int index) {
  if (num_shards != kShardHint || index != kShardHint) {
    if (num_shards < 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("Number of shards must be greater than zero (currently num_shards = ", num_shards, ")."));
    }
    if (index < 0 || index >= num_shards) {
      return absl::InvalidArgumentError(
          absl::StrCat("Index must be between 0 and ", num_shards - 1, " (currently index = ", index, ")."));
    }
  }
  return std::make_shared<ShardDataset>(std::move(input), num_shards, index);
}

absl::StatusOr<DatasetPtr> ShardByFile(const DatasetPtr& dataset, int num_shards, int index) {
  return WithSource(dataset, [&](const DatasetPtr& source) -> absl::StatusOr<DatasetPtr> {
    const auto* const files = dynamic_cast<const FileDataset*>(source.get());
    if (files == nullptr) {
      return absl::NotFoundError("Found an unshardable source dataset: its examples do not lie in files");
    }
    if (files->num_files() >= num_shards) return files->ShardFiles(num_shards, index);
    return absl::InvalidArgumentError(absl::StrCat(
        "Could not apply FILE based sharding: the dataset only has ", files->num_files(),
        " file(s), which is not enough for the required ", num_shards,
        " shards/workers. If you are using datasets with distribution strategy, consider setting the auto sharding "
        "policy to either DATA or OFF using AutoShardPolicy. Or, split your input files into a larger number of small "
        "files such that number of files is greater than number of shards/workers."));
  });
}

absl::StatusOr<DatasetPtr> ShardByHint(const DatasetPtr& dataset, int num_shards, int index) {
  const DatasetPtr input = dataset->input();
  if (input == nullptr) return dataset;
  ASSIGN_OR_RETURN(DatasetPtr sharded, ShardByHint(input, num_shards, index));
  if (IsPlaceholder(*dataset)) return Shard(std::move(sharded), num_shards, index);
  return dataset->WithInput(std::move(sharded));
}

absl::Status CheckNoShardHint(const DatasetPtr& dataset) {
  for (DatasetPtr at = dataset; at != nullptr; at = at->input()) {
    if (!IsPlaceholder(*at)) continue;
    return absl::FailedPreconditionError(
        "`tf.data.Dataset.shard(SHARD_HINT, ...)` can only be used in "
        "`tf.distribute.Strategy.experimental_distribute_dataset()` with "
        "`tf.data.experimental.AutoShardPolicy.HINT` policy");
  }
  return absl::OkStatus();
}

}  // namespace official::data
