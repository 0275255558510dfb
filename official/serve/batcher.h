// Batcher: the examples of concurrent requests in common batches, each of one servable.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "official/serve/servable/servable.h"

namespace official::serve {

struct BatcherOptions {
  size_t max_batch_size = 32;
  // The time that an example may wait for others that would fill its batch. 0: a batch is what has arrived while the
  // one before it was computed.
  std::chrono::microseconds batch_timeout{0};
};

class Batcher {
 public:
  using Clock = std::chrono::steady_clock;
  // Takes the outputs of all examples of a request, or the error of one of its batches. If a batch fails that has
  // examples of several requests, those of each request are run again alone, so that none gets another's error.
  using Done = std::function<void(absl::StatusOr<std::vector<Values>>)>;
  using RunBatch = std::function<absl::StatusOr<std::vector<Values>>(const std::shared_ptr<Servable>& servable,
                                                                     absl::Span<const Values> examples)>;

  explicit Batcher(const BatcherOptions& options) : options_(options) {}

  // Adds the examples of a request, at least one, that `servable` has prepared and will run, from any thread. `done` is
  // called once, by the thread of Serve: with DeadlineExceeded if a batch with one of them would begin after
  // `deadline`.
  void Add(std::shared_ptr<Servable> servable, std::vector<Values> examples, Clock::time_point deadline, Done done);

  // Runs batches, with the calling thread, until Stop is called and no example waits.
  void Serve(const RunBatch& run);
  void Stop();
  // From now on no example waits for others.
  void Hurry();

 private:
  struct Request {
    std::shared_ptr<Servable> servable;
    std::vector<Values> outputs;
    size_t num_left;
    Clock::time_point deadline;
    Done done;  // null after its call
  };
  struct Item {
    std::shared_ptr<Request> request;
    size_t index;  // in the request
    Values example;
    Clock::time_point added;
  };

  // True if no further example can be in the next batch.
  bool IsFull() const;
  // Waits for the next batch; returns nothing if there is none any more.
  std::vector<Item> Take();
  static void RunItems(std::vector<Item> items, const RunBatch& run);
  static void Deliver(absl::Span<const Item> items, absl::StatusOr<std::vector<Values>> outputs);

  const BatcherOptions options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> waiting_;
  bool stopped_ = false, hurries_ = false;
};

}  // namespace official::serve
