#include <algorithm>
#include <vector>

#include "utils/compute/cpu/parallel.h"
#include "utils/compute/runtime/kernel.h"

namespace official::compute {
namespace {

// What is compared: float for all storage types, integers as they are.
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

// A heap of the k best seen so far: most elements fail the one comparison with its worst.
template <typename T>
Kernel MakeTopK(const KernelSpec& spec) {
  const int64_t size = spec.input(0).shape.dim(-1), k = spec.attrs().GetInt("k");
  const int64_t rows = spec.output(0).shape.num_elements() / k;
  return {[=](const KernelArgs& args) {
    ParallelFor(rows, RowGrain(size), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const T* x = args.input<T>(0) + r * size;
        int32_t* best = args.output<int32_t>(1) + r * k;
        const auto before = [x](int32_t a, int32_t b) {
          return Key(x[b]) < Key(x[a]) || (!(Key(x[a]) < Key(x[b])) && a < b);
        };
        for (int32_t i = 0; i < k; ++i) best[i] = i;
        std::make_heap(best, best + k, before);
        for (int32_t i = static_cast<int32_t>(k); i < size; ++i) {
          if (!before(i, best[0])) continue;
          std::pop_heap(best, best + k, before);
          best[k - 1] = i;
          std::push_heap(best, best + k, before);
        }
        std::sort_heap(best, best + k, before);
        for (int64_t i = 0; i < k; ++i) args.output<T>(0)[r * k + i] = x[best[i]];
      }
    });
    return absl::OkStatus();
  }};
}

const bool arg_max = RegisterKernel({
    .op = "ArgMax",
    .device_kind = "cpu",
    .dtypes = StorageTypesAnd({DType::kInt32}),
    .make = [](const KernelSpec& spec) -> absl::StatusOr<Kernel> {
      if (spec.input(0).dtype == DType::kInt32) return MakeArgMax<int32_t>(spec);
      return WithStorageType(spec.input(0).dtype, [&]<typename T>(T) { return MakeArgMax<T>(spec); });
    },
});

const bool top_k = RegisterKernel({
    .op = "TopK",
    .device_kind = "cpu",
    .dtypes = StorageTypes(),
    .make = ForStorageType([]<typename T>(const KernelSpec& spec, T) { return MakeTopK<T>(spec); }),
});

}  // namespace
}  // namespace official::compute
