// HeldRows: the rows that a worker computes, as a training divides batches among its replicas, or deals them out.
#pragma once

#include <cstdint>

#include "utils/compute/core/batch_parts.h"

namespace official::data {

// The default holds all rows.
struct HeldRows {
  compute::Share replicas{0, 1};  // the replicas of the worker
  int num_replicas = 1;           // of all workers
  int micro_batches = 1;          // into which a batch is divided before it is divided among the replicas
  // The worker computes one of so many batches, counted from the first that is read: that with number `batch`, as with
  // parameter servers.
  int of_batches = 1, batch = 0;

  // True if it computes rows of batch `number`, counted from the first that is read.
  bool HoldsBatch(int64_t number) const { return number % of_batches == batch; }

  // Calls f(begin, end) for the ranges of the held rows of a batch of n, in ascending order.
  template <typename F>
  void ForRanges(int64_t n, const F& f) const {
    const int parts = micro_batches * num_replicas;
    for (int64_t first = 0; first < parts; first += num_replicas) {
      const int64_t begin = compute::ShareOf(n, first + replicas.begin, parts).begin;
      const int64_t end = compute::ShareOf(n, first + replicas.end - 1, parts).end;
      if (begin < end) f(begin, end);
    }
  }
};

}  // namespace official::data
