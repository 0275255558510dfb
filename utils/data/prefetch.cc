#include <condition_variable>
#include <mutex>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "utils/compute/core/check.h"
#include "utils/data/batch.h"

namespace official::data {
namespace {

using NextResult = absl::StatusOr<std::optional<Batch>>;

bool IsBatch(const NextResult& result) { return result.ok() && result->has_value(); }

class PrefetchedSource : public BatchSource {
 public:
  PrefetchedSource(BatchSourcePtr source, int depth)
      : source_(std::move(source)), ring_(depth), thread_([this] { ReadAhead(); }) {}

  ~PrefetchedSource() override {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  const ElementSpec& spec() const override { return source_->spec(); }

  NextResult Next() override {
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

 private:
  void ReadAhead() {
    for (bool more = true; more;) {
      {
        std::unique_lock<std::mutex> lock(mutex_);
        changed_.wait(lock, [this] { return stop_ || num_ready_ < ring_.size(); });
        if (stop_) return;
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
  }

  NextResult ReadOne() {
    try {
      return source_->Next();
    } catch (const std::bad_alloc&) {
      return absl::InternalError("out of memory while reading data");
    }
  }

  BatchSourcePtr source_;  // used by the thread alone, but for its spec
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<NextResult> ring_;  // entries [first_, first_ + num_ready_), modulo its size, are read and not yet taken
  size_t first_ = 0, num_ready_ = 0;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace

BatchSourcePtr Prefetch(BatchSourcePtr source, int depth) {
  OFFICIAL_CHECK(depth >= 0) << "depth " << depth;
  if (depth == 0) return source;
  return std::make_unique<PrefetchedSource>(std::move(source), depth);
}

}  // namespace official::data
