#include "utils/distribute/worker_summer.h"

#include <chrono>
#include <utility>

namespace official::distribute {
namespace {

using Clock = std::chrono::steady_clock;

// In the first steps, buffers are touched for the first time and algorithms chosen.
constexpr int64_t kFirstSteps = 5;

double SecondsSince(Clock::time_point since) { return std::chrono::duration<double>(Clock::now() - since).count(); }

}  // namespace

WorkerSummer::WorkerSummer(std::unique_ptr<WorkerSum> sum, Exchange& exchange)
    : sum_(std::move(sum)), exchange_(exchange), thread_([this] { Loop(); }) {}

WorkerSummer::~WorkerSummer() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ending_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void WorkerSummer::Begin(int pack, absl::Span<const std::vector<Buffer>> buffers) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (pack >= static_cast<int>(is_summed_.size())) is_summed_.resize(pack + 1);
  is_summed_[pack] = false;
  if (pack == 0 && ++steps_ > kFirstSteps) ++costs_.steps;
  given_.push_back({pack, buffers});
  changed_.notify_all();
}

absl::Status WorkerSummer::Sum(int pack, absl::Span<const std::vector<Buffer>> buffers, int64_t begin, int64_t end) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (waiting_++ == 0) waiting_since_ = Clock::now();
  changed_.wait(lock, [&] { return is_summed_[pack] || !status_.ok(); });
  if (--waiting_ > 0) return status_;
  if (costs_.steps > 0) costs_.waited_seconds += SecondsSince(waiting_since_);
  return status_;
}

// Nothing is left to be summed after that; the buffers may go.
absl::Status WorkerSummer::Reset() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return !summing_; });
  given_.clear();
  return absl::FailedPreconditionError("a worker has failed, and with it the job");
}

double WorkerSummer::SecondsOfWaiting() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return seconds_of_waiting_;
}

SumCosts WorkerSummer::Costs() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return costs_;
}

void WorkerSummer::Loop() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return ending_ || !given_.empty(); });
    if (ending_ || !status_.ok()) return;
    const Given given = given_.front();
    given_.pop_front();
    summing_ = true;
    lock.unlock();
    const auto since = Clock::now();
    const int64_t sent_before = sum_->bytes_sent();
    const double waited_before = sum_->seconds_waited();
    const absl::Status status = sum_->Sum(given.buffers);
    lock.lock();
    summing_ = false;
    seconds_of_waiting_ += sum_->seconds_waited() - waited_before;
    if (costs_.steps > 0) {
      costs_.seconds += SecondsSince(since);
      costs_.bytes_sent += sum_->bytes_sent() - sent_before;
    }
    status_ = status;
    is_summed_[given.pack] = status.ok();
    changed_.notify_all();
  }
}

}  // namespace official::distribute
