#include "utils/compute/cpu/start_threads.h"

#include <mutex>
#include <thread>
#include <vector>

#include "utils/compute/cpu/parallel.h"

namespace official::compute {
namespace {

// As many at once as there will be; OpenMP's take the memory that these leave.
class Rehearsal {
 public:
  explicit Rehearsal(int threads) : all_started_(mutex_) {
    threads_.reserve(threads);
    try {
      for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { const std::lock_guard wait(mutex_); });
    } catch (...) {
      End();
      throw;
    }
    End();
  }

 private:
  void End() {
    all_started_.unlock();
    for (std::thread& thread : threads_) thread.join();
  }

  std::mutex mutex_;
  std::unique_lock<std::mutex> all_started_;
  std::vector<std::thread> threads_;
};

}  // namespace

void StartThreads(int n) {
  if (n <= 1) return;
  const Rehearsal rehearsal(n - 1);
  ParallelRun(
      n, [](void*, int) {}, nullptr);
}

}  // namespace official::compute
