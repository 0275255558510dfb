// CUDA kernels of ArgMax and TopK: a warp or a block for each row. TopK reads a row once for every kBest elements of
// its result: k is small where it is used (the beams of a search, ten recommendations).

#include "utils/compute/ops/top_k/top_k.h"

#include <cmath>

#include "utils/compute/core/dtype.h"
#include "utils/compute/cuda/cuda_device.h"
#include "utils/compute/cuda/cuda_status.h"
#include "utils/compute/cuda/launch.h"
#include "utils/compute/cuda/pack.h"
#include "utils/compute/cuda/row_threads.h"
#include "utils/compute/ops/rows/rows.h"
#include "utils/compute/ops/top_k/order_key.h"

namespace official::compute {
namespace {

template <typename T>
__device__ uint64_t KeyOf(const T* x, int64_t i) {
  if constexpr (kIsNarrowFloat<T>) {
    return OrderKey(static_cast<float>(x[i]), static_cast<uint32_t>(i));
  } else {
    return OrderKey(x[i], static_cast<uint32_t>(i));
  }
}

// The largest of the keys of the row's threads.
template <typename Threads>
__device__ uint64_t Largest(uint64_t key) {
  return Threads::Reduce(key, [](uint64_t a, uint64_t b) { return a < b ? b : a; });
}

// As std::max_element, which stays with a NaN that comes first.
template <typename Threads, typename T>
__global__ void __launch_bounds__(Threads::kBlock) ArgMaxRows(Rows rows, const T* input, int64_t* positions) {
  const int64_t row = Threads::Row();
  if (row >= rows.count) return;
  const T* const x = input + row * rows.size;
  uint64_t best = 0;
  for (int64_t i = Threads::Lane(); i < rows.size; i += Threads::kRowThreads) {
    const uint64_t key = KeyOf(x, i);
    if (key > best) best = key;
  }
  best = Largest<Threads>(best);
  if (Threads::Lane() != 0) return;
  positions[row] = isnan(static_cast<float>(x[0])) ? 0 : IndexOfKey(best);
}

constexpr uint64_t kNoLimit = ~uint64_t{0};  // no element has this key
constexpr int kBest = 8;

// The largest keys that a thread has seen, in descending order; 0 where there are none.
struct BestKeys {
  uint64_t at[kBest] = {};

  __device__ void Insert(uint64_t key) {
    if (key <= at[kBest - 1]) return;
#pragma unroll
    for (int j = kBest - 1; j > 0; --j) {
      if (key > at[j]) at[j] = key > at[j - 1] ? at[j - 1] : key;
    }
    if (key > at[0]) at[0] = key;
  }
  __device__ void RemoveFirst() {
#pragma unroll
    for (int j = 1; j < kBest; ++j) at[j - 1] = at[j];
    at[kBest - 1] = 0;
  }
};

// The largest keys below `limit` of those of this thread's elements of the row.
template <typename Threads, typename T>
__device__ BestKeys BestKeysBelow(const T* x, int64_t size, uint64_t limit) {
  constexpr int kAtOnce = 4;  // loads that are under way together
  constexpr int64_t kStep = Threads::kRowThreads * Threads::kElements;
  BestKeys best;
  for (int64_t i = Threads::Lane() * Threads::kElements; i < size; i += kAtOnce * kStep) {
    Pack<T, Threads::kElements> packs[kAtOnce];
#pragma unroll
    for (int r = 0; r < kAtOnce; ++r) {
      if (i + r * kStep < size) packs[r] = LoadPack<Threads::kElements>(x + i + r * kStep);
    }
#pragma unroll
    for (int r = 0; r < kAtOnce; ++r) {
      if (i + r * kStep >= size) break;
#pragma unroll
      for (int k = 0; k < Threads::kElements; ++k) {
        const uint64_t key = OrderKey(packs[r].Float(k), static_cast<uint32_t>(i + r * kStep + k));
        if (key < limit) best.Insert(key);
      }
    }
  }
  return best;
}

template <typename Threads, typename T>
__global__ void __launch_bounds__(Threads::kBlock)
    TopKRows(Rows rows, const T* input, int64_t k, T* values, int32_t* indices) {
  const int64_t row = Threads::Row();
  if (row >= rows.count) return;
  const T* const x = input + row * rows.size;
  uint64_t last = kNoLimit;
  for (int64_t first = row * k, end = (row + 1) * k; first < end; first += kBest) {
    BestKeys best = BestKeysBelow<Threads>(x, rows.size, last);
    const int64_t pass_end = min(first + kBest, end);
    for (int64_t i = first; i < pass_end; ++i) {
      last = Largest<Threads>(best.at[0]);
      if (best.at[0] == last) best.RemoveFirst();
      if (Threads::Lane() != 0) continue;
      values[i] = x[IndexOfKey(last)];
      indices[i] = static_cast<int32_t>(IndexOfKey(last));
    }
  }
}

template <typename T>
Kernel MakeArgMax(const KernelSpec& spec) {
  return {[rows = RowsOf(spec.input(0).shape), stream = CudaDeviceOf(spec).stream()](const KernelArgs& args) {
    if (rows.count == 0) return absl::OkStatus();
    WithRowThreads<1>(rows.size, [&]<typename Threads>(Threads) {
      Launch(ArgMaxRows<Threads, T>, NumBlocks(rows.count, Threads::kRowsOfBlock), Threads::kBlock, 0, stream, rows,
             args.input<T>(0), args.output<int64_t>(0));
    });
    return LaunchStatus("ArgMaxRows");
  }};
}

template <typename T>
Kernel MakeTopK(const KernelSpec& spec) {
  return {[rows = RowsOf(spec.input(top_k::kX).shape), k = spec.attrs().GetInt("k"),
           stream = CudaDeviceOf(spec).stream()](const KernelArgs& args) {
    if (rows.count == 0) return absl::OkStatus();
    WithRowThreads<kWidestLoad<T>>(rows.size, [&]<typename Threads>(Threads) {
      Launch(TopKRows<Threads, T>, NumBlocks(rows.count, Threads::kRowsOfBlock), Threads::kBlock, 0, stream, rows,
             args.input<T>(top_k::kX), k, args.output<T>(top_k::kValues), args.output<int32_t>(top_k::kIndices));
    });
    return LaunchStatus("TopKRows");
  }};
}

const bool registered = [] {
  RegisterKernel({
      .op = op::ArgMax,
      .device_kind = "cuda",
      .dtypes = StorageTypesAnd({DType::kInt32}),
      .make = [](const KernelSpec& spec) -> absl::StatusOr<Kernel> {
        if (spec.input(0).dtype == DType::kInt32) return MakeArgMax<int32_t>(spec);
        return WithStorageType(spec.input(0).dtype, [&]<typename T>(T) { return MakeArgMax<T>(spec); });
      },
  });
  RegisterKernel({
      .op = op::TopK,
      .device_kind = "cuda",
      .dtypes = StorageTypes(),
      .make = ForStorageType([]<typename T>(const KernelSpec& spec, T) { return MakeTopK<T>(spec); }),
  });
  return true;
}();

}  // namespace
}  // namespace official::compute
