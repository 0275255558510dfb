#include "utils/data/worker_pool.h"

#include <utility>

#include "utils/compute/core/check.h"

namespace official::data {

WorkerPool::WorkerPool(int num_threads) {
  OFFICIAL_CHECK(num_threads >= 1) << num_threads << " threads";
  try {
    for (int i = 1; i < num_threads; ++i) threads_.emplace_back([this] { WorkerLoop(); });
  } catch (...) {  // threads that are not joined would end the process
    Stop();
    throw;
  }
}

WorkerPool::~WorkerPool() { Stop(); }

void WorkerPool::Stop() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  work_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void WorkerPool::ForEach(int64_t n, absl::FunctionRef<void(int64_t)> fn) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    fn_ = &fn;
    end_ = n;
    next_ = 0;
    num_busy_ = static_cast<int>(threads_.size());
    ++loop_;
  }
  work_.notify_all();
  TakeAll();
  std::unique_lock<std::mutex> lock(mutex_);
  done_.wait(lock, [this] { return num_busy_ == 0; });
  if (exception_ != nullptr) std::rethrow_exception(std::exchange(exception_, nullptr));
}

void WorkerPool::TakeAll() {
  try {
    for (int64_t i = next_++; i < end_; i = next_++) (*fn_)(i);
  } catch (...) {
    const std::lock_guard<std::mutex> lock(mutex_);
    exception_ = std::current_exception();
  }
}

void WorkerPool::WorkerLoop() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (int64_t seen = 0;;) {
    work_.wait(lock, [&] { return stop_ || loop_ != seen; });
    if (stop_) return;
    seen = loop_;
    lock.unlock();
    TakeAll();
    lock.lock();
    if (--num_busy_ == 0) done_.notify_one();
  }
}

}  // namespace official::data
