// The rule by which a batch is divided, both among devices and into the partial sums of one device. Because it is one
// rule, the partial sums of several devices are those of a single one, and sums over the batch come out the same to the
// bit.
#pragma once

#include <cstdint>

namespace official::compute {

// Examples [begin, end) of a batch.
struct Share {
  int64_t begin, end;
  int64_t size() const { return end - begin; }
};

// The share of part `part` of `parts` in a batch of n: sizes differ by at most one, and the first is never smaller than
// another. For powers of two a part of a part is the part that it would be of the whole.
constexpr Share ShareOf(int64_t n, int64_t part, int64_t parts) {
  const auto begin_of = [=](int64_t p) { return (n * p + parts - 1) / parts; };
  return {begin_of(part), begin_of(part + 1)};
}

// The number of parts into which each of `num_replicas` devices divides its share of a batch. The partial sums are the
// same for 1, 2 and 4 devices.
constexpr int BatchPartsOfReplica(int num_replicas) {
  constexpr int kBatchParts = 4;
  return num_replicas < kBatchParts && kBatchParts % num_replicas == 0 ? kBatchParts / num_replicas : 1;
}

// value(begin) + ... + value(end - 1), end > begin: the sum of the first half (rounded up) plus that of the second.
template <typename F>
auto TreeSum(int64_t begin, int64_t end, const F& value) -> decltype(value(begin)) {
  if (end - begin == 1) return value(begin);
  const int64_t middle = begin + (end - begin + 1) / 2;
  return TreeSum(begin, middle, value) + TreeSum(middle, end, value);
}

}  // namespace official::compute
