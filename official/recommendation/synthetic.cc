#include "official/recommendation/synthetic.h"

#include <memory>
#include <numeric>
#include <optional>
#include <utility>

#include "official/recommendation/ncf_input.h"
#include "utils/data/random.h"

namespace official::recommendation {
namespace {

using compute::DType;
using compute::Tensor;

constexpr uint64_t kSeed = 1;

void FillIds(int64_t limit, int64_t stream, Tensor& ids) {
  data::Random random(kSeed, /*epoch=*/0, /*index=*/stream);
  for (int64_t i = 0; i < ids.num_elements(); ++i) {
    ids.data<int32_t>()[i] = static_cast<int32_t>(random.UniformInt(limit));
  }
}

class ConstantBatchSource : public data::BatchSource {
 public:
  ConstantBatchSource(data::Batch batch, int64_t batches_per_epoch, data::Position start, int64_t end_epoch)
      : spec_(TrainSpec()),
        batch_(std::move(batch)),
        examples_per_epoch_(batches_per_epoch * batch_.num_examples),
        end_epoch_(end_epoch),
        next_(start) {}

  const data::ElementSpec& spec() const override { return spec_; }

  absl::StatusOr<std::optional<data::Batch>> Next() override {
    if (next_.index >= examples_per_epoch_) next_ = {next_.epoch + 1, 0};
    if (next_.epoch >= end_epoch_) return std::nullopt;
    data::Batch batch = batch_;
    batch.first = next_;
    next_.index += batch.num_examples;
    if (next_.index >= examples_per_epoch_) next_ = {next_.epoch + 1, 0};
    batch.next = next_;
    return batch;
  }

 private:
  const data::ElementSpec spec_;
  const data::Batch batch_;
  const int64_t examples_per_epoch_, end_epoch_;
  data::Position next_;
};

}  // namespace

Ratings SyntheticRatings(const GeneratorOptions& size) {
  Ratings ratings;
  ratings.user_ids.resize(size.num_users);
  std::iota(ratings.user_ids.begin(), ratings.user_ids.end(), 1);
  ratings.item_ids.resize(size.num_items);
  std::iota(ratings.item_ids.begin(), ratings.item_ids.end(), 1);
  ratings.offsets.assign(size.num_users + 1, 0);
  ratings.held_out.assign(size.num_users, 0);
  return ratings;
}

data::BatchSourcePtr SyntheticTrainBatches(const GeneratorOptions& size, int num_neg, int64_t num_examples,
                                           int64_t batch_size, data::Position start, int64_t end_epoch) {
  Tensor users(DType::kInt32, {batch_size}), items(DType::kInt32, {batch_size}), labels(DType::kFloat32, {batch_size});
  FillIds(size.num_users, /*stream=*/0, users);
  FillIds(size.num_items, /*stream=*/1, items);
  for (int64_t i = 0; i < batch_size; ++i) labels.data<float>()[i] = i % (1 + num_neg) == 0 ? 1.0f : 0.0f;
  data::Batch batch;
  batch.features = {users, items};
  batch.labels = {labels};
  batch.num_examples = batch_size;
  return std::make_unique<ConstantBatchSource>(std::move(batch), num_examples / batch_size, start, end_epoch);
}

EvalData SyntheticEvalData(const GeneratorOptions& size, int32_t num_users, int num_negatives) {
  EvalData eval;
  eval.num_candidates = 1 + num_negatives;
  Tensor items(DType::kInt32, {int64_t{num_users} * eval.num_candidates});
  FillIds(size.num_items, /*stream=*/2, items);
  eval.items.assign(items.data<int32_t>(), items.data<int32_t>() + items.num_elements());
  eval.repeat_offsets.assign(num_users + 1, 0);
  return eval;
}

}  // namespace official::recommendation
