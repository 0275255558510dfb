// ClosureQueue: the functions that wait for a worker, and what becomes of them. Closures are run at least once, in no
// order. As TensorFlow's tf.distribute.coordinator has it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "utils/compute/core/tensor.h"

namespace official::coordinator {

// RemoteValue: the results that a closure has or will have, as tf.distribute.coordinator.RemoteValue. Copies refer to
// the same results.
class RemoteValue {
 public:
  // Waits until the closure has been run, and returns its results or its error; Cancelled if it never will be run.
  absl::StatusOr<std::vector<compute::Tensor>> Fetch() const;

 private:
  friend class ClosureQueue;
  struct State {
    std::mutex mutex;
    std::condition_variable set;
    std::optional<absl::StatusOr<std::vector<compute::Tensor>>> result;
  };
  void Set(absl::StatusOr<std::vector<compute::Tensor>> result) const;

  std::shared_ptr<State> state_ = std::make_shared<State>();
};

// Closure: a call of a function that some worker is to make.
struct Closure {
  std::string function;
  std::vector<compute::Tensor> arguments;
  RemoteValue result = {};
};

// This is safe for use by several threads.
class ClosureQueue {
 public:
  // `capacity`: how many closures may wait.
  explicit ClosureQueue(size_t capacity) : capacity_(capacity) {}

  // Puts a closure into the queue; waits while that is full. Errors: those of Wait.
  absl::Status Put(Closure closure);
  // Takes a closure; nothing if none has come in this time, or the queue is closed. Each one is then given to Finish or
  // PutBack.
  std::optional<Closure> Take(std::chrono::milliseconds time);
  // The closure has been run.
  void Finish(const Closure& closure, absl::StatusOr<std::vector<compute::Tensor>> result);
  // The worker is lost: another one is to run the closure, before those that wait.
  void PutBack(Closure closure);

  // Waits until all closures have been run, or one has failed. Returns the first error since the last one that was
  // returned, after the closures being run have ended; those that wait then are Cancelled. After Close() with an error,
  // that error, always.
  absl::Status Wait();
  // Returns true if no closure waits or is being run. Errors, and what they do, as of Wait.
  absl::StatusOr<bool> Done();

  // No closure is taken any more. Those that wait have the error, or are Cancelled. The first call counts.
  void Close(const absl::Status& status);
  bool is_closed() const;

 private:
  // Returns the error of a closure, after what Wait says, or of Close().
  absl::Status RaiseError(std::unique_lock<std::mutex>& lock);
  void CancelWaiting(const absl::Status& status);

  const size_t capacity_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Closure> waiting_;
  int running_ = 0;
  bool cancelling_ = false;             // closures that are put back will not be run
  absl::Status error_;                  // the first one of a closure, not returned yet
  std::optional<absl::Status> closed_;  // with what
};

}  // namespace official::coordinator
