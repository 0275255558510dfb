// Batches: examples collected into tensors with a batch dimension, in an order that depends on nothing but the data
// set's order and the place where reading begins.
#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "utils/data/dataset.h"

namespace official::data {

// A place in the stream of examples: the next example to read is number `index` of `epoch`. It is all that a checkpoint
// must keep of a pipeline.
struct Position {
  int64_t epoch = 0;
  int64_t index = 0;
  friend bool operator==(const Position&, const Position&) = default;
};

// Features and labels in the order of the source's spec, each [num_examples, ...]. Tensors stay valid and unchanged for
// as long as somebody holds them; once the last holder lets go, the source reuses their memory.
struct Batch {
  Tensors features;
  Tensors labels;
  int64_t num_examples = 0;
  Position first;  // of its first example
  Position next;   // of the example after its last; an epoch's end is the next epoch's {epoch + 1, 0}
};

class BatchSource {
 public:
  virtual ~BatchSource() = default;
  // Types of one example; batches have one more dimension in front.
  virtual const ElementSpec& spec() const = 0;
  // The examples of an epoch; nothing if that is not known. For any thread.
  virtual std::optional<int64_t> num_examples() const { return std::nullopt; }
  // The next batch, or nothing after the last. After an error or the end every further call gives the same answer. For
  // one thread at a time. How long a consumer waits for data is how long this call takes.
  virtual absl::StatusOr<std::optional<Batch>> Next() = 0;
  // Waits until Next() has an answer at once, at most so long; whether it has. A source that does not read ahead cannot
  // tell how long a read takes: it says yes.
  virtual bool WaitUntilReady(std::chrono::milliseconds limit) { return true; }
};
using BatchSourcePtr = std::unique_ptr<BatchSource>;

constexpr int64_t kEndless = std::numeric_limits<int64_t>::max();

struct BatchOptions {
  int64_t batch_size = 1;
  // Where to begin: an example that a Batch::next named, whatever the batch size was then.
  Position start = {};
  // Epochs [start.epoch, end_epoch) are read; kEndless never stops.
  int64_t end_epoch = 1;
  // false: every epoch ends with a batch of what is left (batch, then repeat). true: a batch goes on into the next
  // epoch, and only the last batch of all may be smaller (repeat, then batch).
  bool across_epochs = false;
  // Threads that read and map examples of a batch at the same time. The result does not depend on it.
  int num_threads = 1;
};

// InvalidArgument if batch_size is below 1; DataLoss if the data set is empty or `start` lies outside it.
absl::StatusOr<BatchSourcePtr> Batches(DatasetPtr dataset, const BatchOptions& options);

// The type of a batch of `size` tensors of `type`.
compute::TensorType BatchedType(const compute::TensorType& type, int64_t size);

// The numbering of batches that Batches() uses, for sources that make their batches in another way.
class BatchCounter {
 public:
  static absl::StatusOr<BatchCounter> Create(int64_t num_examples, const BatchOptions& options);
  // The next batch, still without tensors; num_examples is 0 after the last.
  Batch Advance();
  // No batch from here on is larger than this.
  int64_t max_batch() const;

 private:
  BatchCounter(int64_t num_examples, const BatchOptions& options);
  int64_t NextSize() const;

  int64_t num_examples_, batch_size_, end_epoch_;
  bool across_epochs_;
  Position position_;
};

// Reads up to `depth` batches ahead of `source` on one background thread. Order is kept. An error of `source` comes out
// of Next() at its own place in the order, after the batches before it. Destroying the result ends the thread, too; but
// a read that does not return within 2 s is left behind with its thread, so that a disk that hangs holds nobody up:
// `source` must own all that it uses. With depth 0 nothing is read ahead and there is no thread.
BatchSourcePtr Prefetch(BatchSourcePtr source, int depth);

}  // namespace official::data
