#include "utils/distribute/worker_summer.h"

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

class WorkerSummer : public PackSummer {
 public:
  WorkerSummer(std::unique_ptr<WorkerSum> sum, Exchange& exchange)
      : sum_(std::move(sum)), exchange_(exchange), thread_([this] { Loop(); }) {}
  ~WorkerSummer() override {
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
    given_.push_back({pack, buffers});
    changed_.notify_all();
  }
  // One thread waits for the whole pack.
  int64_t Share(int64_t left) const override { return left; }
  absl::Status Sum(int pack, absl::Span<const std::vector<Buffer>> buffers, int64_t begin, int64_t end) override {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return is_summed_[pack] || !status_.ok(); });
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

 private:
  struct Given {
    int pack;
    absl::Span<const std::vector<Buffer>> buffers;  // [local device]
  };

  void Loop() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return ending_ || !given_.empty(); });
      if (ending_ || !status_.ok()) return;
      const Given given = given_.front();
      given_.pop_front();
      summing_ = true;
      lock.unlock();
      const absl::Status status = sum_->Sum(given.buffers);
      lock.lock();
      summing_ = false;
      status_ = status;
      is_summed_[given.pack] = status.ok();
      changed_.notify_all();
    }
  }

  const std::unique_ptr<WorkerSum> sum_;
  Exchange& exchange_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Given> given_;      // not yet taken by the thread
  std::vector<char> is_summed_;  // by pack, in this step
  absl::Status status_;          // an error, after which there are no sums any more
  bool summing_ = false;         // the thread works on a pack
  bool ending_ = false;
  std::thread thread_;  // last: starts when all else is there
};

}  // namespace

std::unique_ptr<PackSummer> MakeWorkerSummer(std::unique_ptr<WorkerSum> sum, Exchange& exchange) {
  return std::make_unique<WorkerSummer>(std::move(sum), exchange);
}

}  // namespace official::distribute
