#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "utils/compute/core/check.h"
#include "utils/data/batch.h"
#include "utils/logs/log.h"

namespace official::data {
namespace {

using NextResult = absl::StatusOr<std::optional<Batch>>;

bool IsBatch(const NextResult& result) { return result.ok() && result->has_value(); }

// Destroying a source waits so long for a read to end, then leaves it behind.
constexpr std::chrono::seconds kPatience(2);

// What a source shares with its thread, which keeps it alive: a read that hangs may outlast the source.
class ReadAhead {
 public:
  ReadAhead(BatchSourcePtr source, int depth) : source_(std::move(source)), ring_(depth) {}

  const ElementSpec& spec() const { return source_->spec(); }
  std::optional<int64_t> num_examples() const { return source_->num_examples(); }

  // On the thread.
  void Run() {
    for (bool more = true; more;) {
      {
        std::unique_lock<std::mutex> lock(mutex_);
        changed_.wait(lock, [this] { return stop_ || num_ready_ < ring_.size(); });
        if (stop_) break;
      }
      NextResult result = ReadOne();
      more = IsBatch(result);
      {
        std::lock_guard<std::mutex> lock(mutex_);
        ring_[(first_ + num_ready_) % ring_.size()] = std::move(result);
        ++num_ready_;
      }
      changed_.notify_all();
    }
    std::lock_guard<std::mutex> lock(mutex_);
    ended_ = true;
    changed_.notify_all();
  }

  bool WaitUntilReady(std::chrono::milliseconds limit) {
    std::unique_lock<std::mutex> lock(mutex_);
    return changed_.wait_for(lock, limit, [this] { return num_ready_ > 0; });
  }

  NextResult Next() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return num_ready_ > 0; });
    NextResult& oldest = ring_[first_];
    if (!IsBatch(oldest)) return oldest;  // stays, as the answer of every further call
    NextResult result = std::exchange(oldest, std::nullopt);
    first_ = (first_ + 1) % ring_.size();
    --num_ready_;
    lock.unlock();
    changed_.notify_all();
    return result;
  }

  void Cancel() { source_->Cancel(); }

  // Whether the thread came to its end within kPatience.
  bool Stop() {
    Cancel();  // a batch of many examples that are slow to decode ends with the present ones
    std::unique_lock<std::mutex> lock(mutex_);
    stop_ = true;
    changed_.notify_all();
    return changed_.wait_for(lock, kPatience, [this] { return ended_; });
  }

 private:
  NextResult ReadOne() {
    try {
      return source_->Next();
    } catch (const std::bad_alloc&) {
      return out_of_memory_;
    }
  }

  const BatchSourcePtr source_;  // used by the thread alone, but for what any thread may call
  // Made while there is memory.
  const absl::Status out_of_memory_ = absl::InternalError("out of memory while reading data");
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<NextResult> ring_;  // entries [first_, first_ + num_ready_), modulo its size, are read and not yet taken
  size_t first_ = 0, num_ready_ = 0;
  bool stop_ = false, ended_ = false;
};

class PrefetchedSource : public BatchSource {
 public:
  PrefetchedSource(BatchSourcePtr source, int depth)
      : ahead_(std::make_shared<ReadAhead>(std::move(source), depth)), thread_([ahead = ahead_] { ahead->Run(); }) {}

  ~PrefetchedSource() override {
    if (ahead_->Stop()) {
      thread_.join();
    } else {
      LOG(WARNING) << "a read of data has not ended after " << kPatience.count() << " s; the run continues without it";
      thread_.detach();
    }
  }
  const ElementSpec& spec() const override { return ahead_->spec(); }
  std::optional<int64_t> num_examples() const override { return ahead_->num_examples(); }
  bool WaitUntilReady(std::chrono::milliseconds limit) override { return ahead_->WaitUntilReady(limit); }
  NextResult Next() override { return ahead_->Next(); }
  void Cancel() override { ahead_->Cancel(); }

 private:
  const std::shared_ptr<ReadAhead> ahead_;
  std::thread thread_;
};

}  // namespace

BatchSourcePtr Prefetch(BatchSourcePtr source, int depth) {
  OFFICIAL_CHECK(depth >= 0) << "depth " << depth;
  if (depth == 0) return source;
  return std::make_unique<PrefetchedSource>(std::move(source), depth);
}

}  // namespace official::data
