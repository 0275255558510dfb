#include "utils/data/every_nth.h"

#include <utility>

#include "utils/compute/core/status.h"

namespace official::data {
namespace {

class EveryNthSource : public BatchSource {
 public:
  EveryNthSource(BatchSourcePtr source, int n, int first) : source_(std::move(source)), n_(n), first_(first) {}

  const ElementSpec& spec() const override { return source_->spec(); }
  std::optional<int64_t> num_examples() const override { return source_->num_examples(); }
  bool WaitUntilReady(std::chrono::milliseconds limit) override { return source_->WaitUntilReady(limit); }
  void Cancel() override { source_->Cancel(); }

  absl::StatusOr<std::optional<Batch>> Next() override {
    if (!begun_) RETURN_IF_ERROR(ReadOn(first_ + 1));
    begun_ = true;
    if (ended_) return std::nullopt;
    Batch own = last_;
    RETURN_IF_ERROR(ReadOn(n_ - 1 - first_));
    own.next = last_.next;
    RETURN_IF_ERROR(ReadOn(first_ + 1));
    if (ended_) own.next = last_.next;
    return own;
  }

 private:
  // Reads so many batches, of which it keeps the last.
  absl::Status ReadOn(int count) {
    for (int i = 0; i < count && !ended_; ++i) {
      ASSIGN_OR_RETURN(std::optional<Batch> batch, source_->Next());
      ended_ = !batch;
      if (batch) last_ = *std::move(batch);
    }
    return absl::OkStatus();
  }

  const BatchSourcePtr source_;
  const int n_, first_;
  bool begun_ = false, ended_ = false;
  Batch last_;  // that was read; from the first on, this is one to return
};

}  // namespace

BatchSourcePtr EveryNth(BatchSourcePtr source, int n, int first) {
  return std::make_unique<EveryNthSource>(std::move(source), n, first);
}

}  // namespace official::data
