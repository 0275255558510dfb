// Batches: examples collected into tensors with a batch dimension, in an order that depends only on the data set's
// order and the place where reading begins.
#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "utils/data/dataset.h"
#include "utils/data/held_rows.h"

namespace official::data {

// A place in the stream of examples: the next example to read is number `index` of `epoch`. It is the whole state of a
// pipeline that a checkpoint must keep.
struct Position {
  int64_t epoch = 0;
  int64_t index = 0;
  friend bool operator==(const Position&, const Position&) = default;
};

// Features and labels in the order of the source's spec, each [num_examples, ...]. Tensors stay valid and unchanged for
// as long as somebody holds them; after that the source reuses their memory.
struct Batch {
  Tensors features;
  Tensors labels;
  int64_t num_examples = 0;
  Position first;  // position of the batch's first example
  Position next;   // position of the example after its last; after an epoch's end {epoch + 1, 0}
};

class BatchSource {
 public:
  virtual ~BatchSource() = default;
  // The types of one example; batches have one more dimension in front.
  virtual const ElementSpec& spec() const = 0;
  // The number of examples in an epoch; nothing if it is not known. Any thread may call it.
  virtual std::optional<int64_t> num_examples() const { return std::nullopt; }
  // Returns the next batch, or nothing after the last. After an error or the end every further call returns the same.
  // For one thread at a time. A consumer's wait for data is the time that this call takes.
  virtual absl::StatusOr<std::optional<Batch>> Next() = 0;
  // Waits, at most for `limit`, until Next() can return at once; returns true if it can. A source that does not read
  // ahead cannot tell how long a read takes and returns true.
  virtual bool WaitUntilReady(std::chrono::milliseconds limit) { return true; }
  // Tells a Next() that another thread is in to return soon: nobody takes its batch, so it may return Cancelled, as may
  // all after it. Any thread may call it. A source that owns another one passes it on.
  virtual void Cancel() {}
};
using BatchSourcePtr = std::unique_ptr<BatchSource>;

constexpr int64_t kEndless = std::numeric_limits<int64_t>::max();

struct BatchOptions {
  int64_t batch_size = 1;
  // The position to begin at: some Batch::next, with any batch size.
  Position start = {};
  // Epochs [start.epoch, end_epoch) are read; kEndless never stops.
  int64_t end_epoch = 1;
  // false: every epoch ends with a batch of what is left (batch, then repeat). true: a batch continues into the next
  // epoch, and only the last batch of all may be smaller (repeat, then batch).
  bool across_epochs = false;
  // The number of threads that read and map examples of a batch at the same time. The result does not depend on it.
  int num_threads = 1;
  // The rows to read. The others of a batch, and all of a batch that HeldRows::HoldsBatch excludes, are there, but
  // nobody has written them.
  HeldRows rows = {};
};

// Returns the batches of a data set. InvalidArgument if batch_size is below 1; DataLoss if the data set is empty or
// `start` lies outside it.
absl::StatusOr<BatchSourcePtr> Batches(DatasetPtr dataset, const BatchOptions& options);

// Returns a batch of one example whose elements are zeros, from which a program can be made where there is no data.
Batch ExampleOfZeros(const ElementSpec& spec);

// Returns the type of a batch of `size` tensors of `type`.
compute::TensorType BatchedType(const compute::TensorType& type, int64_t size);

// The numbering of batches that Batches() uses, for sources that make their batches in another way.
class BatchCounter {
 public:
  static absl::StatusOr<BatchCounter> Create(int64_t num_examples, const BatchOptions& options);
  // Returns the next batch, still without tensors; num_examples is 0 after the last.
  Batch Advance();
  // The largest size of the batches that are left.
  int64_t max_batch() const;

 private:
  BatchCounter(int64_t num_examples, const BatchOptions& options);
  int64_t NextSize() const;

  int64_t num_examples_, batch_size_, end_epoch_;
  bool across_epochs_;
  Position position_;
};

// Reads up to `depth` batches ahead of `source` on one background thread. Order is kept: Next() returns an error of
// `source` after the batches before it. Destroying the result cancels `source` and ends the thread, too; but a read
// that does not return within 2 s is abandoned with its thread, so that a disk that hangs blocks nobody: `source` must
// own all that it uses. With depth 0 nothing is read ahead and there is no thread.
BatchSourcePtr Prefetch(BatchSourcePtr source, int depth);

}  // namespace official::data
