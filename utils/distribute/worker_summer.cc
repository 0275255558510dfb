#include "utils/distribute/worker_summer.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "utils/distribute/worker_summer.h"

namespace official::distribute {
namespace {

using Buffer = PackSummer::Buffer;

// In the first steps, buffers are touched for the first time and algorithms chosen.
constexpr int64_t kFirstSteps = 5;

class ThreadSummer : public WorkerSummer {
 public:
  ThreadSummer(std::unique_ptr<WorkerSum> sum, Exchange& exchange)
      : sum_(std::move(sum)), exchange_(exchange), thread_([this] { Loop(); }) {}
  ~ThreadSummer() override {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      ending_ = true;
      changed_.notify_all();
    }
    thread_.join();
  }

  void Begin(int pack, absl::Span<const std::vector<Buffer>> buffers) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (pack >= static_cast<int>(is_summed_.size())) is_summed_.resize(pack + 1);
    is_summed_[pack] = false;
    if (pack == 0 && ++steps_ > kFirstSteps) ++costs_.steps;
    given_.push_back({pack, buffers});
    changed_.notify_all();
  }
  // One thread waits for the whole pack.
  int64_t Share(int64_t left) const override { return left; }
  absl::Status Sum(int pack, absl::Span<const std::vector<Buffer>> buffers, int64_t begin, int64_t end) override {
    std::unique_lock<std::mutex> lock(mutex_);
    const auto since = Clock::now();
    changed_.wait(lock, [&] { return is_summed_[pack] || !status_.ok(); });
    if (costs_.steps > 0) costs_.waited_seconds += SecondsSince(since);
    return status_;
  }
  void Abort() override { exchange_.Fail(""); }
  // Nothing is left to be summed after that; the buffers may go.
  absl::Status Reset() override {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return !summing_; });
    given_.clear();
    return absl::FailedPreconditionError("a worker has failed, and with it the job");
  }
  SumCosts Costs() const override {
    const std::lock_guard<std::mutex> lock(mutex_);
    return costs_;
  }

 private:
  using Clock = std::chrono::steady_clock;
  struct Given {
    int pack;
    absl::Span<const std::vector<Buffer>> buffers;  // [local device]
  };

  static double SecondsSince(Clock::time_point since) {
    return std::chrono::duration<double>(Clock::now() - since).count();
  }

  void Loop() {
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
      const absl::Status status = sum_->Sum(given.buffers);
      lock.lock();
      summing_ = false;
      if (costs_.steps > 0) {
        costs_.seconds += SecondsSince(since);
        costs_.bytes_sent += sum_->bytes_sent() - sent_before;
      }
      status_ = status;
      is_summed_[given.pack] = status.ok();
      changed_.notify_all();
    }
  }

  const std::unique_ptr<WorkerSum> sum_;
  Exchange& exchange_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Given> given_;      // not yet taken by the thread
  std::vector<char> is_summed_;  // by pack, in this step
  absl::Status status_;          // an error, after which there are no sums any more
  int64_t steps_ = 0;
  SumCosts costs_;
  bool summing_ = false;  // the thread works on a pack
  bool ending_ = false;
  std::thread thread_;  // last: starts when all else is there
};

}  // namespace

std::unique_ptr<WorkerSummer> MakeWorkerSummer(std::unique_ptr<WorkerSum> sum, Exchange& exchange) {
  return std::make_unique<ThreadSummer>(std::move(sum), exchange);
}

}  // namespace official::distribute
