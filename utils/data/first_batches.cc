#include "utils/data/first_batches.h"

#include <mutex>
#include <utility>
#include <vector>

#include "utils/compute/core/status.h"

namespace official::data {
namespace {

class RepeatedBatches : public BatchSource {
 public:
  RepeatedBatches(BatchSourcePtr source, const FirstBatchesOptions& options)
      : options_(options),
        spec_(source->spec()),
        source_(std::move(source)),
        epoch_(options.start.epoch),
        start_index_(options.start.index) {}

  const ElementSpec& spec() const override { return spec_; }
  std::optional<int64_t> num_examples() const override { return options_.num_examples; }

  absl::StatusOr<std::optional<Batch>> Next() override {
    if (has_ended()) return std::nullopt;
    while (!IsReady()) RETURN_IF_ERROR(Read());
    RETURN_IF_ERROR(status_);
    if (next_ == batches_.size()) {
      next_ = 0;
      start_index_ = 0;
      if (++epoch_; has_ended()) return std::nullopt;
    }
    Batch batch = batches_[next_++];
    batch.first.epoch = epoch_;
    batch.next = next_ == batches_.size() ? Position{epoch_ + 1, 0} : Position{epoch_, batches_[next_].first.index};
    return batch;
  }

  bool WaitUntilReady(std::chrono::milliseconds limit) override {
    if (has_ended() || IsReady()) return true;
    if (!source_->WaitUntilReady(limit)) return false;
    return !Read().ok() || IsReady();
  }

  void Cancel() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (source_ != nullptr) source_->Cancel();
  }

 private:
  bool has_ended() const { return epoch_ >= options_.end_epoch; }

  // Goes to the batch at which the first epoch begins, as far as that is read. True if Next() can return at once: a
  // batch ends where the one after it begins, so that it must be there, too.
  bool IsReady() {
    while (next_ < batches_.size() && batches_[next_].first.index < start_index_) ++next_;
    return source_ == nullptr || next_ + 1 < batches_.size();
  }

  // Reads one more batch. Afterwards source_ is null if it was the last, or if there was an error.
  absl::Status Read() {
    absl::StatusOr<std::optional<Batch>> batch = source_->Next();
    status_ = batch.status();
    const bool is_batch = batch.ok() && batch->has_value();
    if (is_batch) batches_.push_back(**std::move(batch));
    if (!is_batch || static_cast<int64_t>(batches_.size()) == options_.num_batches) EndSource();
    if (status_.ok() && batches_.empty()) status_ = absl::DataLossError("the data have no batch");
    return status_;
  }

  void EndSource() {
    BatchSourcePtr ended;  // which may take a while, in which Cancel does not wait
    const std::lock_guard<std::mutex> lock(mutex_);
    ended = std::move(source_);
  }

  const FirstBatchesOptions options_;
  const ElementSpec spec_;
  std::mutex mutex_;       // of the pointer, which Cancel reads on another thread
  BatchSourcePtr source_;  // null when all batches are read
  std::vector<Batch> batches_;
  absl::Status status_;
  int64_t epoch_;
  int64_t start_index_;  // in epoch_
  size_t next_ = 0;
};

}  // namespace

BatchSourcePtr FirstBatches(BatchSourcePtr source, const FirstBatchesOptions& options) {
  return std::make_unique<RepeatedBatches>(std::move(source), options);
}

}  // namespace official::data
