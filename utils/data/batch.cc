#include "utils/data/batch.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "utils/compute/core/status.h"
#include "utils/data/worker_pool.h"

namespace official::data {
namespace {

using compute::Shape;
using compute::Tensor;
using compute::TensorType;

// Memory of one batch and its rows, each an example that a Dataset writes.
struct BatchBuffer {
  BatchBuffer(const ElementSpec& spec, int64_t num_rows) : rows(num_rows) {
    Add(spec.features, features, &Example::features);
    Add(spec.labels, labels, &Example::labels);
  }
  void Add(const std::vector<Leaf>& leaves, Tensors& tensors, Tensors Example::*group) {
    for (const Leaf& leaf : leaves) {
      tensors.emplace_back(BatchedType(leaf.type, rows.size()));
      char* data = static_cast<char*>(tensors.back().raw_data());
      for (size_t row = 0; row < rows.size(); ++row) {
        (rows[row].*group).emplace_back(leaf.type, data + row * leaf.type.num_bytes());
      }
    }
  }

  Tensors features, labels;
  std::vector<Example> rows;
};

class BatchedDataset : public BatchSource {
 public:
  BatchedDataset(DatasetPtr dataset, BatchCounter counter, const HeldRows& rows, int num_threads)
      : dataset_(std::move(dataset)),
        counter_(std::move(counter)),
        max_batch_(counter_.max_batch()),
        rows_(rows),
        pool_(num_threads) {}
  const ElementSpec& spec() const override { return dataset_->spec(); }
  std::optional<int64_t> num_examples() const override { return dataset_->num_examples(); }
  void Cancel() override { cancelled_ = true; }

  absl::StatusOr<std::optional<Batch>> Next() override {
    RETURN_IF_ERROR(error_);
    Batch batch = counter_.Advance();
    if (batch.num_examples == 0) return std::nullopt;
    const std::shared_ptr<BatchBuffer> buffer = FreeBuffer();
    if (rows_.HoldsBatch(num_batches_++)) error_ = Fill(batch, *buffer);
    RETURN_IF_ERROR(error_);
    Share(buffer, buffer->features, batch.num_examples, batch.features);
    Share(buffer, buffer->labels, batch.num_examples, batch.labels);
    return batch;
  }

 private:
  // A buffer that no consumer holds.
  std::shared_ptr<BatchBuffer> FreeBuffer() {
    for (const std::shared_ptr<BatchBuffer>& buffer : buffers_) {
      // Once ours is the last reference nobody can make another. The copy returned here is a read-modify-write of the
      // count, which puts the consumer's reads, made before it let go, before our writes; use_count() alone would not.
      if (buffer.use_count() == 1) return buffer;
    }
    buffers_.push_back(std::make_shared<BatchBuffer>(dataset_->spec(), max_batch_));
    return buffers_.back();
  }

  absl::Status Fill(const Batch& batch, const BatchBuffer& buffer) {
    const int64_t num_examples = dataset_->num_examples();
    std::mutex mutex;
    absl::Status error;
    int64_t error_row = batch.num_examples;
    read_.clear();
    rows_.ForRanges(batch.num_examples, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) read_.push_back(row);
    });
    pool_.ForEach(static_cast<int64_t>(read_.size()), [&](int64_t i) {
      if (cancelled_) return;
      const int64_t row = read_[i];
      const int64_t index = batch.first.index + row;
      absl::Status status =
          dataset_->Read(batch.first.epoch + index / num_examples, index % num_examples, buffer.rows[row]);
      if (status.ok()) return;
      // The first bad row of the batch is reported, whichever thread came upon one first.
      std::lock_guard<std::mutex> lock(mutex);
      if (row < error_row) {
        error = std::move(status);
        error_row = row;
      }
    });
    if (cancelled_) return absl::CancelledError("the batch is no longer needed");
    return error;
  }

  static void Share(const std::shared_ptr<BatchBuffer>& buffer, const Tensors& tensors, int64_t num_rows,
                    Tensors& out) {
    for (const Tensor& tensor : tensors) {
      TensorType type = tensor.type();
      type.shape.set_dim(0, num_rows);
      out.emplace_back(std::move(type), tensor.raw_data(), buffer);
    }
  }

  DatasetPtr dataset_;
  BatchCounter counter_;
  int64_t max_batch_;
  const HeldRows rows_;
  int64_t num_batches_ = 0;    // so far
  std::vector<int64_t> read_;  // the rows of a batch that are read
  WorkerPool pool_;
  std::vector<std::shared_ptr<BatchBuffer>> buffers_;
  absl::Status error_;
  std::atomic<bool> cancelled_ = false;
};

}  // namespace

TensorType BatchedType(const TensorType& type, int64_t size) {
  absl::InlinedVector<int64_t, 5> dims = {size};
  dims.insert(dims.end(), type.shape.dims().begin(), type.shape.dims().end());
  return {type.dtype, Shape(dims)};
}

Batch ExampleOfZeros(const ElementSpec& spec) {
  Batch batch;
  batch.num_examples = 1;
  for (const Leaf& leaf : spec.features) batch.features.emplace_back(BatchedType(leaf.type, 1));
  for (const Leaf& leaf : spec.labels) batch.labels.emplace_back(BatchedType(leaf.type, 1));
  return batch;
}

absl::StatusOr<BatchSourcePtr> Batches(DatasetPtr dataset, const BatchOptions& options) {
  ASSIGN_OR_RETURN(BatchCounter counter, BatchCounter::Create(dataset->num_examples(), options));
  return std::make_unique<BatchedDataset>(std::move(dataset), std::move(counter), options.rows, options.num_threads);
}

BatchCounter::BatchCounter(int64_t num_examples, const BatchOptions& options)
    : num_examples_(num_examples),
      batch_size_(options.batch_size),
      end_epoch_(options.end_epoch),
      across_epochs_(options.across_epochs),
      position_(options.start) {}

absl::StatusOr<BatchCounter> BatchCounter::Create(int64_t num_examples, const BatchOptions& options) {
  if (options.batch_size < 1) {
    return absl::InvalidArgumentError(
        absl::StrFormat("The batch size must be at least 1, found %d.", options.batch_size));
  }
  if (num_examples < 1) return absl::DataLossError("The data set has no examples.");
  const Position& start = options.start;
  if (start.epoch < 0 || start.index < 0 || start.index > num_examples) {
    return absl::DataLossError(absl::StrFormat(
        "Cannot continue at epoch %d, example %d: the data set has %d examples. Is the checkpoint of another data set?",
        start.epoch, start.index, num_examples));
  }
  BatchCounter counter(num_examples, options);
  if (start.index == num_examples) counter.position_ = {start.epoch + 1, 0};
  return counter;
}

Batch BatchCounter::Advance() {
  Batch batch;
  batch.num_examples = NextSize();
  batch.first = batch.next = position_;
  if (batch.num_examples == 0) return batch;
  const int64_t index = position_.index + batch.num_examples;
  batch.next = position_ = {position_.epoch + index / num_examples_, index % num_examples_};
  return batch;
}

int64_t BatchCounter::NextSize() const {
  if (position_.epoch >= end_epoch_) return 0;
  const int64_t left_in_epoch = num_examples_ - position_.index;
  if (!across_epochs_) return std::min(batch_size_, left_in_epoch);
  // 128 bits: an endless stream has about 2^63 epochs.
  const __int128 left = static_cast<__int128>(end_epoch_ - position_.epoch - 1) * num_examples_ + left_in_epoch;
  return left < batch_size_ ? static_cast<int64_t>(left) : batch_size_;
}

int64_t BatchCounter::max_batch() const { return across_epochs_ ? NextSize() : std::min(batch_size_, num_examples_); }

}  // namespace official::data
