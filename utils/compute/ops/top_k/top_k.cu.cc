// CUDA kernels of ArgMax and TopK: a warp or a block for each row. TopK looks k times for the largest element below the
// one before: k is small where it is used (the beams of a search, ten recommendations).

#include "utils/compute/ops/top_k/top_k.h"

#include <cmath>

#include "utils/compute/core/dtype.h"
#include "utils/compute/cuda/cuda_device.h"
#include "utils/compute/cuda/cuda_status.h"
#include "utils/compute/cuda/launch.h"
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

// The largest key of the row that is below `limit`.
template <typename Threads, typename T>
__device__ uint64_t LargestKeyBelow(const T* x, int64_t size, uint64_t limit) {
  uint64_t best = 0;
  for (int64_t i = Threads::Lane(); i < size; i += Threads::kRowThreads) {
    const uint64_t key = KeyOf(x, i);
    if (key < limit && key > best) best = key;
  }
  return Threads::Reduce(best, [](uint64_t a, uint64_t b) { return a < b ? b : a; });
}

constexpr uint64_t kNoLimit = ~uint64_t{0};  // no element has this key

// As std::max_element, which stays with a NaN that comes first.
template <typename Threads, typename T>
__global__ void __launch_bounds__(Threads::kBlock) ArgMaxRows(Rows rows, const T* input, int64_t* positions) {
  const int64_t row = Threads::Row();
  if (row >= rows.count) return;
  const T* const x = input + row * rows.size;
  const uint64_t best = LargestKeyBelow<Threads>(x, rows.size, kNoLimit);
  if (Threads::Lane() != 0) return;
  positions[row] = isnan(static_cast<float>(x[0])) ? 0 : IndexOfKey(best);
}

template <typename Threads, typename T>
__global__ void __launch_bounds__(Threads::kBlock)
    TopKRows(Rows rows, const T* input, int64_t k, T* values, int32_t* indices) {
  const int64_t row = Threads::Row();
  if (row >= rows.count) return;
  const T* const x = input + row * rows.size;
  uint64_t last = kNoLimit;
  for (int64_t i = row * k; i < (row + 1) * k; ++i) {
    last = LargestKeyBelow<Threads>(x, rows.size, last);
    if (Threads::Lane() != 0) continue;
    values[i] = x[IndexOfKey(last)];
    indices[i] = static_cast<int32_t>(IndexOfKey(last));
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
    WithRowThreads<1>(rows.size, [&]<typename Threads>(Threads) {
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
