#include "utils/data/first_batches.h"

#include <utility>
#include <vector>

#include "utils/compute/core/status.h"

namespace official::data {
namespace {

class RepeatedBatches : public BatchSource {
 public:
  RepeatedBatches(ElementSpec spec, std::vector<Batch> batches, const FirstBatchesOptions& options)
      : spec_(std::move(spec)),
        batches_(std::move(batches)),
        epoch_(options.start.epoch),
        end_epoch_(options.end_epoch) {
    while (next_ < batches_.size() && batches_[next_].first.index < options.start.index) ++next_;
  }

  const ElementSpec& spec() const override { return spec_; }
  std::optional<int64_t> num_examples() const override {
    int64_t sum = 0;
    for (const Batch& batch : batches_) sum += batch.num_examples;
    return sum;
  }

  absl::StatusOr<std::optional<Batch>> Next() override {
    if (next_ == batches_.size()) {
      next_ = 0;
      ++epoch_;
    }
    if (epoch_ >= end_epoch_) return std::nullopt;
    Batch batch = batches_[next_++];
    batch.first.epoch = epoch_;
    batch.next = next_ == batches_.size() ? Position{epoch_ + 1, 0} : Position{epoch_, batches_[next_].first.index};
    return batch;
  }

 private:
  const ElementSpec spec_;
  const std::vector<Batch> batches_;
  int64_t epoch_;
  const int64_t end_epoch_;
  size_t next_ = 0;
};

}  // namespace

absl::StatusOr<BatchSourcePtr> FirstBatches(BatchSource& source, const FirstBatchesOptions& options) {
  std::vector<Batch> batches;
  while (static_cast<int64_t>(batches.size()) < options.num_batches) {
    ASSIGN_OR_RETURN(std::optional<Batch> batch, source.Next());
    if (!batch) break;
    batches.push_back(*std::move(batch));
  }
  if (batches.empty()) return absl::DataLossError("the data have no batch");
  return std::make_unique<RepeatedBatches>(source.spec(), std::move(batches), options);
}

}  // namespace official::data
