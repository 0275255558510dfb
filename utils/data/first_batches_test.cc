#include "utils/data/first_batches.h"

#include <catch2/catch.hpp>
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
  const BatchSourcePtr pairs = Pairs(count);
  const BatchSourcePtr source = FirstBatches(*pairs, options).value();
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
  const BatchSourcePtr pairs = Pairs(3);
  CHECK(FirstBatches(*pairs, {.num_batches = 7}).value()->num_examples() == 3);
}

TEST_CASE("From each position they continue as without a break") {
  const Read whole = ReadAll(9, {.num_batches = 3, .end_epoch = 3});
  for (size_t done = 1; done < whole.next.size(); ++done) {
    const Read rest = ReadAll(9, {.num_batches = 3, .start = whole.next[done - 1], .end_epoch = 3});
    CHECK(rest.labels == std::vector<int>(whole.labels.begin() + done, whole.labels.end()));
  }
  CHECK(ReadAll(9, {.num_batches = 3, .start = {3, 0}, .end_epoch = 3}) == Read());
}

}  // namespace
}  // namespace official::data
