// A few threads that run loops together.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"

namespace official::data {

class WorkerPool {
 public:
  // `num_threads` (at least 1) counts the caller of ForEach, so 1 starts no thread. Throws std::system_error if the
  // system cannot start more.
  explicit WorkerPool(int num_threads);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // Calls fn(i) once for every 0 <= i < n, each thread taking the next i that is left, and returns when all are done.
  // Allocates nothing. An exception of fn ends its thread's share of the loop and is rethrown at the end. For one
  // caller at a time.
  void ForEach(int64_t n, absl::FunctionRef<void(int64_t)> fn);

 private:
  void WorkerLoop();
  void Stop();
  void TakeAll();

  std::atomic<int64_t> next_{0};
  // The current loop; written by ForEach while no worker is busy.
  int64_t end_ = 0;
  const absl::FunctionRef<void(int64_t)>* fn_ = nullptr;

  std::mutex mutex_;
  std::condition_variable work_, done_;
  int64_t loop_ = 0;  // number of the current loop; workers run each once
  int num_busy_ = 0;
  bool stop_ = false;
  std::exception_ptr exception_;  // exception of the current loop
  std::vector<std::thread> threads_;
};

}  // namespace official::data
