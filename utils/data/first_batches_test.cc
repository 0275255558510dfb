#include "utils/data/first_batches.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <memory>
#include <utility>
#include <vector>

namespace official::data {
namespace {

using compute::DType;
using compute::Tensor;

// The examples 10, 11, ..., in batches of 2 of one epoch.
BatchSourcePtr Pairs(int64_t count) {
  Tensor labels(DType::kInt32, {count});
  for (int i = 0; i < count; ++i) labels.data<int32_t>()[i] = 10 + i;
  return Batches(TensorSlices({{"", labels}}, {{"", labels}}), {.batch_size = 2}).value();
}

struct Read {
  std::vector<int> labels = {};     // the first of each batch
  std::vector<Position> next = {};  // the position after it
  friend bool operator==(const Read&, const Read&) = default;
};

Read ReadAll(int64_t count, const FirstBatchesOptions& options) {
  const BatchSourcePtr source = FirstBatches(Pairs(count), options);
  Read read;
  Position at = options.start;
  for (auto batch = source->Next().value(); batch; batch = source->Next().value()) {
    CHECK(batch->first == at);
    at = batch->next;
    read.labels.push_back(batch->labels[0].data<int32_t>()[0]);
    read.next.push_back(at);
  }
  CHECK_FALSE(source->Next().value());
  return read;
}

TEST_CASE("The first batches come again in each epoch") {
  CHECK(ReadAll(9, {.num_batches = 2, .end_epoch = 3}) ==
        Read{{10, 12, 10, 12, 10, 12}, {{0, 2}, {1, 0}, {1, 2}, {2, 0}, {2, 2}, {3, 0}}});
  CHECK(ReadAll(9, {.num_batches = 1, .end_epoch = 2}) == Read{{10, 10}, {{1, 0}, {2, 0}}});
}

TEST_CASE("A source with fewer batches gives all, the last of them smaller") {
  CHECK(ReadAll(3, {.num_batches = 7, .end_epoch = 2}) == Read{{10, 12, 10, 12}, {{0, 2}, {1, 0}, {1, 2}, {2, 0}}});
  CHECK(FirstBatches(Pairs(3), {.num_batches = 7, .num_examples = 3})->num_examples() == 3);
  CHECK_FALSE(FirstBatches(Pairs(3), {.num_batches = 7})->num_examples());
}

TEST_CASE("From each position they continue as without a break") {
  const Read whole = ReadAll(9, {.num_batches = 3, .end_epoch = 3});
  for (size_t done = 1; done < whole.next.size(); ++done) {
    const Read rest = ReadAll(9, {.num_batches = 3, .start = whole.next[done - 1], .end_epoch = 3});
    CHECK(rest.labels == std::vector<int>(whole.labels.begin() + done, whole.labels.end()));
  }
  CHECK(ReadAll(9, {.num_batches = 3, .start = {3, 0}, .end_epoch = 3}) == Read());
}

// Counts what is read of the pairs, of which each second one has to be waited for, and fails after `num_good`.
class SlowPairs : public BatchSource {
 public:
  explicit SlowPairs(int num_good, int& num_read) : pairs_(Pairs(100)), num_good_(num_good), num_read_(num_read) {}
  const ElementSpec& spec() const override { return pairs_->spec(); }
  absl::StatusOr<std::optional<Batch>> Next() override {
    if (num_read_ == num_good_) return absl::DataLossError("a bad record");
    ++num_read_;
    return pairs_->Next();
  }
  bool WaitUntilReady(std::chrono::milliseconds) override { return std::exchange(was_asked_, !was_asked_); }

 private:
  const BatchSourcePtr pairs_;
  const int num_good_;
  int& num_read_;
  bool was_asked_ = false;
};

TEST_CASE("A batch is read with the one after it, when it is asked for") {
  int num_read = 0;
  const BatchSourcePtr source =
      FirstBatches(std::make_unique<SlowPairs>(100, num_read), {.num_batches = 3, .end_epoch = 2});
  CHECK(num_read == 0);
  for (const int wanted : {2, 3, 3, 3, 3, 3}) {
    CHECK(source->Next().value());
    CHECK(num_read == wanted);
  }
  CHECK_FALSE(source->Next().value());
}

TEST_CASE("Who waits gets an answer after each read, so that there is time for signals") {
  int num_read = 0;
  const BatchSourcePtr source =
      FirstBatches(std::make_unique<SlowPairs>(100, num_read), {.num_batches = 30, .start = {0, 40}, .end_epoch = 1});
  int asked = 1;
  for (; !source->WaitUntilReady(std::chrono::milliseconds(1)); ++asked) CHECK(num_read <= asked / 2);
  CHECK(asked == 2 * 22);  // the batches before example 40, the next one and the one after it
  CHECK(source->Next().value()->first == Position{0, 40});
  CHECK(num_read == 22);
}

TEST_CASE("An error of the source stays, and no batch at all is one") {
  int num_read = 0;
  const BatchSourcePtr source = FirstBatches(std::make_unique<SlowPairs>(2, num_read), {.num_batches = 3});
  CHECK(source->Next().value());
  for (int i = 0; i < 2; ++i) {
    CHECK(source->Next().status().message() == "a bad record");
    CHECK(source->WaitUntilReady(std::chrono::milliseconds(1)));
  }
  const BatchSourcePtr none = FirstBatches(FirstBatches(Pairs(1), {.start = {1, 0}, .end_epoch = 1}), {});
  for (int i = 0; i < 2; ++i) CHECK(none->Next().status().message() == "the data have no batch");
}

}  // namespace
}  // namespace official::data
