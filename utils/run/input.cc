#include "utils/run/input.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/data/first_batches.h"
#include "utils/data/synthetic.h"

namespace official::run {
namespace {

data::SyntheticGroup Zeros(const std::vector<data::Leaf>& leaves) {
  data::SyntheticGroup group;
  for (const data::Leaf& leaf : leaves) {
    group.shapes.push_back({leaf.name, leaf.type.shape});
    OFFICIAL_CHECK(group.dtype.value_or(leaf.type.dtype) == leaf.type.dtype) << leaf.name;
    group.dtype = leaf.type.dtype;
  }
  return group;
}

int64_t DivideUp(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

absl::StatusOr<data::BatchSourcePtr> ReadAhead(data::DatasetPtr dataset, const data::BatchOptions& options) {
  ASSIGN_OR_RETURN(data::BatchSourcePtr batches, data::Batches(std::move(dataset), options));
  return data::Prefetch(std::move(batches), /*depth=*/2);
}

Input SyntheticInput(const SyntheticSet& set, int64_t batch_size) {
  const auto batches = [input = Zeros(set.spec.features), label = Zeros(set.spec.labels)](
                           int64_t num_examples, const data::BatchOptions& options) {
    return data::GenerateSyntheticData({.input = input, .label = label, .num_examples = num_examples}, options);
  };
  return {
      .dataset = absl::StrCat(set.stands_for, "-synthetic"),
      .spec = set.spec,
      .num_train_examples = set.num_train_examples,
      .across_epochs = set.across_epochs,
      .train =
          [=, n = set.num_train_examples, across_epochs = set.across_epochs](const ReadOptions& read) {
            return batches(n, {.batch_size = batch_size,
                               .start = read.start,
                               .end_epoch = read.end_epoch,
                               .across_epochs = across_epochs});
          },
      .eval = [=, n = set.num_eval_examples](const data::HeldRows&) { return batches(n, {.batch_size = batch_size}); }};
}

Input OverfitBatches(Input input, int64_t num_batches, int64_t batch_size) {
  if (input.carries_over) input.steps_per_epoch = input.num_train_examples / batch_size;  // those of the first epoch
  input.across_epochs = input.carries_over = false;
  if (!input.fingerprint.empty()) absl::StrAppend(&input.fingerprint, ", the first ", num_batches, " batches");
  std::optional<int64_t> num_examples;
  if (input.steps_per_epoch) {
    // Where batches are not of --batch_size examples, so many have about their part of the examples.
    input.num_kept_batches = std::min(num_batches, *input.steps_per_epoch);
    input.num_train_examples = DivideUp(input.num_train_examples * input.num_kept_batches, *input.steps_per_epoch);
    input.steps_per_epoch = input.num_kept_batches;
  } else {
    input.num_kept_batches = std::min(num_batches, DivideUp(input.num_train_examples, batch_size));
    input.num_train_examples = std::min(input.num_train_examples, input.num_kept_batches * batch_size);
    num_examples = input.num_train_examples;
  }
  const auto first = [num_batches = input.num_kept_batches, num_examples, train = std::move(input.train)](
                         const data::HeldRows& rows, data::Position start,
                         int64_t end_epoch) -> absl::StatusOr<data::BatchSourcePtr> {
    ReadOptions read{.rows = rows};
    read.rows.of_batches = 1;  // workers that train on parts of the data choose theirs of these batches
    read.rows.batch = 0;
    ASSIGN_OR_RETURN(data::BatchSourcePtr source, train(read));
    return data::FirstBatches(
        std::move(source),
        {.num_batches = num_batches, .start = start, .end_epoch = end_epoch, .num_examples = num_examples});
  };
  input.train = [=](const ReadOptions& read) { return first(read.rows, read.start, read.end_epoch); };
  input.eval = [=](const data::HeldRows& rows) { return first(rows, /*start=*/{}, /*end_epoch=*/1); };
  return input;
}

Input DataOf(const Config& config, Input input, int64_t batch_size) {
  const std::optional<int> num_batches = config.base.overfit_batches;
  return num_batches ? OverfitBatches(std::move(input), *num_batches, batch_size) : std::move(input);
}

train::TrainingBatches BatchesOf(const Config& config, const Input& input) {
  return {.spec = input.spec,
          .batch_size = config.base.batch_size,
          .largest = input.largest_batch,
          .num_kept = input.num_kept_batches};
}

}  // namespace official::run
