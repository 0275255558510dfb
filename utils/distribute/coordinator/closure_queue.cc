#include "utils/distribute/coordinator/closure_queue.h"

#include <utility>

#include "utils/compute/core/status.h"

namespace official::coordinator {
namespace {

using compute::Tensor;

absl::Status Cancelled() {
  return absl::CancelledError("The corresponding function is cancelled. Please reschedule the function.");
}

// A status that shares no memory with another thread's: Abseil counts who shares it where ThreadSanitizer does not see.
absl::Status Clone(const absl::Status& status) { return absl::Status(status.code(), status.message()); }

}  // namespace

absl::StatusOr<std::vector<Tensor>> RemoteValue::Fetch() const {
  std::unique_lock<std::mutex> lock(state_->mutex);
  state_->set.wait(lock, [this] { return state_->result.has_value(); });
  if (!state_->result->ok()) return Clone(state_->result->status());
  return *state_->result;
}

void RemoteValue::Set(absl::StatusOr<std::vector<Tensor>> result) const {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  state_->result = std::move(result);
  state_->set.notify_all();
}

absl::Status ClosureQueue::Put(Closure closure) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return waiting_.size() < capacity_ || !error_.ok() || closed_; });
  if (closed_ && closed_->ok()) return absl::FailedPreconditionError("the coordinator has finished");
  RETURN_IF_ERROR(RaiseError(lock));
  waiting_.push_back(std::move(closure));
  changed_.notify_all();
  return absl::OkStatus();
}

std::optional<Closure> ClosureQueue::Take(std::chrono::milliseconds time) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait_for(lock, time, [this] { return !waiting_.empty() || closed_; });
  if (waiting_.empty()) return std::nullopt;
  Closure closure = std::move(waiting_.front());
  waiting_.pop_front();
  ++running_;
  changed_.notify_all();
  return closure;
}

void ClosureQueue::Finish(const Closure& closure, absl::StatusOr<std::vector<Tensor>> result) {
  const std::lock_guard<std::mutex> lock(mutex_);
  --running_;
  error_.Update(Clone(result.status()));
  closure.result.Set(std::move(result));
  changed_.notify_all();
}

void ClosureQueue::PutBack(Closure closure) {
  const std::lock_guard<std::mutex> lock(mutex_);
  --running_;
  if (closed_) {
    closure.result.Set(closed_->ok() ? Cancelled() : *closed_);
  } else if (cancelling_) {
    closure.result.Set(Cancelled());
  } else {
    waiting_.push_front(std::move(closure));
  }
  changed_.notify_all();
}

absl::Status ClosureQueue::Wait() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return (waiting_.empty() && running_ == 0) || !error_.ok() || closed_; });
  return RaiseError(lock);
}

absl::StatusOr<bool> ClosureQueue::Done() {
  std::unique_lock<std::mutex> lock(mutex_);
  RETURN_IF_ERROR(RaiseError(lock));
  return waiting_.empty() && running_ == 0;
}

absl::Status ClosureQueue::RaiseError(std::unique_lock<std::mutex>& lock) {
  if (closed_) return *closed_;
  if (error_.ok()) return absl::OkStatus();
  cancelling_ = true;
  CancelWaiting(Cancelled());
  changed_.wait(lock, [this] { return running_ == 0 || closed_; });
  cancelling_ = false;
  return closed_ ? *closed_ : std::exchange(error_, absl::OkStatus());
}

void ClosureQueue::CancelWaiting(const absl::Status& status) {
  for (const Closure& closure : std::exchange(waiting_, {})) closure.result.Set(status);
  changed_.notify_all();
}

void ClosureQueue::Close(const absl::Status& status) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (closed_) return;
  closed_ = status;
  CancelWaiting(status.ok() ? Cancelled() : status);
}

bool ClosureQueue::is_closed() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return closed_.has_value();
}

}  // namespace official::coordinator
