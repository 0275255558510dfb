#include "utils/data/every_nth.h"

#include <catch2/catch.hpp>
#include <utility>
#include <vector>

namespace official::data {
namespace {

using compute::DType;
using compute::Tensor;

// The examples 0, 1, ..., count - 1 in batches of 2, in each of two epochs, from `start` on.
BatchSourcePtr Pairs(int64_t count, Position start = {}) {
  Tensor labels(DType::kInt32, {count});
  for (int i = 0; i < count; ++i) labels.data<int32_t>()[i] = i;
  return Batches(TensorSlices({{"", labels}}, {{"", labels}}), {.batch_size = 2, .start = start, .end_epoch = 2})
      .value();
}

// The first example of each batch, by its number in both epochs, and the position after the last one.
std::pair<std::vector<int>, Position> Read(BatchSource& source, int64_t count, Position start = {}) {
  std::vector<int> read;
  Position next = start;
  for (auto batch = source.Next().value(); batch; batch = source.Next().value()) {
    CHECK(batch->labels[0].data<int32_t>()[0] == batch->first.index);
    read.push_back(static_cast<int>(batch->first.epoch * count + batch->first.index));
    next = batch->next;
  }
  CHECK_FALSE(source.Next().value());
  return {read, next};
}

TEST_CASE("Each of n workers has every n-th batch, and all of them each batch once") {
  // 5 examples are 3 batches an epoch: 0 2 4, 5 7 9.
  const auto [first, first_next] = Read(*EveryNth(Pairs(5), 2, 0), 5);
  CHECK(first == std::vector<int>{0, 4, 7});
  CHECK(first_next == Position{2, 0});
  const auto [second, second_next] = Read(*EveryNth(Pairs(5), 2, 1), 5);
  CHECK(second == std::vector<int>{2, 5, 9});
  CHECK(second_next == Position{2, 0});
  CHECK(Read(*EveryNth(Pairs(5), 1, 0), 5).first == std::vector<int>{0, 2, 4, 5, 7, 9});
}

TEST_CASE("Where the last batches are not enough for all workers, all have read to the end") {
  for (const int n : {4, 5}) {
    for (int worker = 0; worker < n; ++worker) {
      const auto [read, next] = Read(*EveryNth(Pairs(5), n, worker), 5);
      CHECK(read.size() == (worker < 6 - n ? 2 : 1));
      CHECK(next == Position{2, 0});
    }
  }
}

TEST_CASE("A worker without a batch stays where it begins") {
  const Position start = {1, 4};
  CHECK(Read(*EveryNth(Pairs(5, start), 2, 0), 5, start) == std::pair{std::vector<int>{9}, Position{2, 0}});
  CHECK(Read(*EveryNth(Pairs(5, start), 2, 1), 5, start) == std::pair{std::vector<int>{}, start});
}

TEST_CASE("A run continues after the batches that all workers have done") {
  const BatchSourcePtr source = EveryNth(Pairs(5), 2, 0);
  const Position next = source->Next().value()->next;
  CHECK(next == Position{0, 4});
  CHECK(Read(*EveryNth(Pairs(5, next), 2, 0), 5, next).first == std::vector<int>{4, 7});
  CHECK(Read(*EveryNth(Pairs(5, next), 2, 1), 5, next).first == std::vector<int>{5, 9});
}

}  // namespace
}  // namespace official::data
