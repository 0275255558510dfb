#include "official/recommendation/ncf_input.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "utils/compute/cpu/parallel.h"

namespace official::recommendation {
namespace {

using compute::DType;
using compute::Tensor;

// Examples of consecutive batches.
struct Block {
  explicit Block(int64_t examples)
      : users(DType::kInt32, {examples}), items(DType::kInt32, {examples}), labels(DType::kFloat32, {examples}) {}

  Tensor users, items, labels;
};

class TrainBatchSource : public data::BatchSource {
 public:
  TrainBatchSource(std::shared_ptr<const TrainSampler> sampler, int64_t batch_size, data::Position start,
                   int64_t end_epoch, const data::HeldRows& rows)
      : spec_(TrainSpec()),
        sampler_(std::move(sampler)),
        batch_size_(batch_size),
        rows_(rows),
        end_(FirstBatch(end_epoch)),
        position_(start),
        next_(FirstBatch(position_.epoch) + position_.index / batch_size),
        first_(next_) {
    // With other data or another batch size than those of the checkpoint the epoch may have no such batch.
    if (const int64_t next_epoch = FirstBatch(position_.epoch + 1); next_ >= next_epoch) {
      position_ = {position_.epoch + 1, 0};
      first_ = next_ = next_epoch;
    }
  }

  const data::ElementSpec& spec() const override { return spec_; }

  absl::StatusOr<std::optional<data::Batch>> Next() override {
    if (next_ >= end_) return std::nullopt;
    if (next_ >= block_end_) MakeBlock();
    const int64_t at = (next_ - block_begin_) * batch_size_;
    const auto part = [&](const Tensor& all) {
      // Keeps the whole block from being written again.
      return Tensor({all.dtype(), {batch_size_}}, static_cast<char*>(all.raw_data()) + at * SizeOf(all.dtype()),
                    block_);
    };
    data::Batch batch;
    batch.features = {part(block_->users), part(block_->items)};
    batch.labels = {part(block_->labels)};
    batch.num_examples = batch_size_;
    batch.first = position_;
    ++next_;
    position_.index += batch_size_;
    if (next_ == FirstBatch(position_.epoch + 1)) position_ = {position_.epoch + 1, 0};
    batch.next = position_;
    return batch;
  }

 private:
  // The number, from the start of the run, of the first batch that is wholly or partly of `epoch`.
  int64_t FirstBatch(int64_t epoch) const {
    if (epoch == data::kEndless) return data::kEndless;
    return epoch * sampler_->num_examples() / batch_size_;
  }

  // A block of which nobody holds a batch.
  std::shared_ptr<Block> FreeBlock(int64_t examples) {
    for (const std::shared_ptr<Block>& block : blocks_) {
      // The copy returned here puts what others read before they let go before what is written next; use_count() alone
      // would not.
      if (block.use_count() == 1 && block->users.num_elements() >= examples) return block;
    }
    blocks_.push_back(std::make_shared<Block>(examples));
    return blocks_.back();
  }

  void MakeBlock() {
    constexpr int64_t kExamples = 1 << 15, kGrain = 1 << 10;
    const int64_t batches = std::min(std::max<int64_t>(1, kExamples / batch_size_), end_ - next_);
    block_begin_ = next_;
    block_end_ = next_ + batches;
    block_ = nullptr;
    block_ = FreeBlock(batches * batch_size_);
    const int64_t first = next_ * batch_size_;
    const auto fill = [&](int64_t rows_begin, int64_t rows_end) {
      compute::ParallelFor(rows_end - rows_begin, kGrain, [&](int64_t begin, int64_t end) {
        const int64_t at = rows_begin + begin;
        sampler_->Fill(first + at, first + rows_begin + end, block_->users.data<int32_t>() + at,
                       block_->items.data<int32_t>() + at, block_->labels.data<float>() + at);
      });
    };
    const bool holds_all = rows_.num_replicas == rows_.replicas.size() && rows_.of_batches == 1;
    if (holds_all) return fill(0, batches * batch_size_);
    for (int64_t b = 0; b < batches; ++b) {
      if (!rows_.HoldsBatch(next_ + b - first_)) continue;
      rows_.ForRanges(batch_size_,
                      [&](int64_t begin, int64_t end) { fill(b * batch_size_ + begin, b * batch_size_ + end); });
    }
  }

  const data::ElementSpec spec_;
  const std::shared_ptr<const TrainSampler> sampler_;
  const int64_t batch_size_;
  const data::HeldRows rows_;
  const int64_t end_;  // number of the batch after the last
  data::Position position_;
  int64_t next_;   // number of the next batch
  int64_t first_;  // of the first that was read
  std::vector<std::shared_ptr<Block>> blocks_;
  std::shared_ptr<Block> block_;             // the one that batches are taken from
  int64_t block_begin_ = 0, block_end_ = 0;  // numbers of its batches
};

class EvalBatchSource : public data::BatchSource {
 public:
  EvalBatchSource(std::shared_ptr<const EvalData> data, int64_t num_users, int64_t users_per_batch)
      : data_(std::move(data)), num_users_(num_users), users_per_batch_(users_per_batch) {
    spec_.features = {{"user_id", {DType::kInt32, {}}}, {"item_id", {DType::kInt32, {data_->num_candidates}}}};
    if (!data_->repeats.empty()) spec_.features.push_back({"repeated", {DType::kBool, {data_->num_candidates}}});
  }

  const data::ElementSpec& spec() const override { return spec_; }
  std::optional<int64_t> num_examples() const override { return num_users_; }

  absl::StatusOr<std::optional<data::Batch>> Next() override {
    const int64_t users = std::min(users_per_batch_, num_users_ - next_);
    if (users == 0) return std::nullopt;
    const int64_t candidates = data_->num_candidates;
    Tensor ids(DType::kInt32, {users});
    for (int64_t u = 0; u < users; ++u) ids.data<int32_t>()[u] = static_cast<int32_t>(next_ + u);
    auto* const items = const_cast<int32_t*>(data_->items.data()) + next_ * candidates;
    data::Batch batch;
    batch.features = {ids, Tensor({DType::kInt32, {users, candidates}}, items)};
    if (spec_.features.size() == 3) {
      Tensor repeated(DType::kBool, {users, candidates});
      for (int64_t u = 0; u < users; ++u) {
        for (const int32_t column : data_->Repeats(static_cast<int32_t>(next_ + u))) {
          repeated.data<bool>()[u * candidates + column] = true;
        }
      }
      batch.features.push_back(repeated);
    }
    batch.num_examples = users;
    batch.first = {0, next_};
    next_ += users;
    batch.next = next_ == num_users_ ? data::Position{1, 0} : data::Position{0, next_};
    return batch;
  }

 private:
  const std::shared_ptr<const EvalData> data_;
  const int64_t num_users_, users_per_batch_;
  data::ElementSpec spec_;
  int64_t next_ = 0;
};

}  // namespace

data::ElementSpec TrainSpec() {
  return {.features = {{"user_id", {DType::kInt32, {}}}, {"item_id", {DType::kInt32, {}}}},
          .labels = {{"", {DType::kFloat32, {}}}}};
}

data::BatchSourcePtr TrainBatches(std::shared_ptr<const TrainSampler> sampler, int64_t batch_size, data::Position start,
                                  int64_t end_epoch, const data::HeldRows& rows) {
  return std::make_unique<TrainBatchSource>(std::move(sampler), batch_size, start, end_epoch, rows);
}

data::BatchSourcePtr EvalBatches(std::shared_ptr<const EvalData> data, int64_t num_users, int64_t users_per_batch) {
  return std::make_unique<EvalBatchSource>(std::move(data), num_users, users_per_batch);
}

}  // namespace official::recommendation
