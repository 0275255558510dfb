#include <algorithm>
#include <limits>
#include <vector>

#include "utils/compute/cpu/parallel.h"
#include "utils/compute/kernel/kernel.h"
#include "utils/compute/ops/rows/for_each_row.h"
#include "utils/compute/ops/top_k/order_key.h"
#include "utils/compute/ops/top_k/top_k.h"

namespace official::compute {
namespace {

// What is compared by value: float for all storage types, integers as they are.
template <typename T>
auto Key(T x) {
  if constexpr (kIsNarrowFloat<T>) {
    return static_cast<float>(x);
  } else {
    return x;
  }
}

int64_t RowGrain(int64_t size) { return std::max<int64_t>(1, 8192 / size); }

template <typename T>
Kernel MakeArgMax(const KernelSpec& spec) {
  const int64_t size = spec.input(0).shape.dim(-1), rows = spec.output(0).shape.num_elements();
  return {[=](const KernelArgs& args) {
    ParallelFor(rows, RowGrain(size), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const T* x = args.input<T>(0) + r * size;
        args.output<int64_t>(0)[r] =
            std::max_element(x, x + size, [](const T& a, const T& b) { return Key(a) < Key(b); }) - x;
      }
    });
    return absl::OkStatus();
  }};
}

template <typename T>
inline float LargestOf(const T* x, int64_t n) {
  float max = -std::numeric_limits<float>::infinity();
#pragma omp simd reduction(max : max)
  for (int64_t i = 0; i < n; ++i) {
    const auto value = static_cast<float>(x[i]);
    max = value > max ? value : max;
  }
  return max;
}

// A heap of the k best seen so far: most blocks of elements have none that is better than its worst.
template <typename T>
Kernel MakeTopK(const KernelSpec& spec) {
  constexpr int64_t kBlock = 64;
  const Rows rows = RowsOf(spec.input(top_k::kX).shape);
  return {[rows, k = spec.attrs().GetInt("k")](const KernelArgs& args) {
    ForEachRow(rows, [&](int64_t r) {
      const T* x = args.input<T>(top_k::kX) + r * rows.size;
      int32_t* best = args.output<int32_t>(top_k::kIndices) + r * k;
      const auto before = [x](int32_t a, int32_t b) {
        return OrderKey(Key(x[a]), static_cast<uint32_t>(a)) > OrderKey(Key(x[b]), static_cast<uint32_t>(b));
      };
      for (int32_t i = 0; i < k; ++i) best[i] = i;
      std::make_heap(best, best + k, before);
      for (int64_t block = k; block < rows.size; block += kBlock) {
        const int64_t end = std::min(rows.size, block + kBlock);
        if (LargestOf(x + block, end - block) <= Key(x[best[0]])) continue;  // never if the worst is NaN
        for (auto i = static_cast<int32_t>(block); i < end; ++i) {
          if (!before(i, best[0])) continue;
          std::pop_heap(best, best + k, before);
          best[k - 1] = i;
          std::push_heap(best, best + k, before);
        }
      }
      std::sort_heap(best, best + k, before);
      for (int64_t i = 0; i < k; ++i) args.output<T>(top_k::kValues)[r * k + i] = x[best[i]];
    });
    return absl::OkStatus();
  }};
}

const bool registered[] = {
    RegisterKernel({
        .op = op::ArgMax,
        .device_kind = "cpu",
        .dtypes = StorageTypesAnd({DType::kInt32}),
        .make = [](const KernelSpec& spec) -> absl::StatusOr<Kernel> {
          if (spec.input(0).dtype == DType::kInt32) return MakeArgMax<int32_t>(spec);
          return WithStorageType(spec.input(0).dtype, [&]<typename T>(T) { return MakeArgMax<T>(spec); });
        },
    }),
    RegisterKernel({
        .op = op::TopK,
        .device_kind = "cpu",
        .dtypes = StorageTypes(),
        .make = ForStorageType([]<typename T>(const KernelSpec& spec, T) { return MakeTopK<T>(spec); }),
    }),
};

}  // namespace
}  // namespace official::compute
