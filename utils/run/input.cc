#include "utils/run/input.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
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

}  // namespace official::run
