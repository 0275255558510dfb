// CPU kernels of Gather, IndexedSlices, AddRows and OneHot.

#include <algorithm>
#include <cstring>

#include "utils/compute/core/batch_parts.h"
#include "utils/compute/core/status.h"
#include "utils/compute/cpu/check_ids.h"
#include "utils/compute/cpu/parallel.h"
#include "utils/compute/cpu/simd.h"
#include "utils/compute/kernel/kernel.h"
#include "utils/compute/ops/array/array.h"
#include "utils/compute/ops/array/moves.h"

namespace official::compute {
namespace {

constexpr int64_t kGrainBytes = 65536;

int64_t Grain(int64_t row_bytes) { return std::max<int64_t>(1, kGrainBytes / std::max<int64_t>(1, row_bytes)); }

absl::StatusOr<Kernel> MakeGather(const KernelSpec& spec) {
  const TensorType& params = spec.input(gather::kParams);
  const int64_t limit = params.shape.dim(0), n = spec.input(gather::kIndices).shape.num_elements();
  const int64_t row_bytes = params.shape.Product(1, params.shape.rank()) * SizeOf(params.dtype);
  return Kernel{[=](const KernelArgs& args) {
    const int32_t* indices = args.input<int32_t>(gather::kIndices);
    RETURN_IF_ERROR(CheckIds("index", indices, n, limit));
    ParallelFor(n, Grain(row_bytes), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        std::memcpy(args.output<char>(gather::kY) + i * row_bytes,
                    args.input<char>(gather::kParams) + indices[i] * row_bytes, row_bytes);
      }
    });
    return absl::OkStatus();
  }};
}

// The positions of each index, in ascending order, as linked lists: first[v] is the first position of index v and
// next[i] the position behind position i; -1 ends a list.
void LinkPositions(const int32_t* indices, int32_t n, int32_t* first, int64_t limit, int32_t* next) {
  std::fill_n(first, limit, -1);
  for (int32_t i = n; i-- > 0;) {
    next[i] = first[indices[i]];
    first[indices[i]] = i;
  }
}

// The parts of the batch in which sums are made, by the positions at which they end (Graph::batch_parts).
struct Parts {
  static constexpr int kMost = 4;

  Parts(int64_t n, int batch_parts) : count(std::min(batch_parts, kMost)) {
    for (int part = 0; part < count; ++part) ends[part] = ShareOf(n, part, count).end;
  }

  int count;
  int64_t ends[kMost] = {};
};

// y = x plus the sum of the rows [..., width] on the list that starts at `position`, in float, whatever T. x may be y,
// or nullptr for zeros.
template <typename T>
void SumRows(const T* x, const T* rows, int64_t width, const int32_t* next, int32_t position, const Parts& parts,
             T* y) {
  constexpr int64_t kTile = 512;
  for (int64_t begin = 0; begin < width; begin += kTile) {
    const int64_t n = std::min(kTile, width - begin);
    WithSimd([=] {
      float sums[Parts::kMost][kTile];
      for (int part = 0; part < parts.count; ++part) std::fill_n(sums[part], n, 0.0f);
      int part = 0;
      for (int32_t p = position; p >= 0; p = next[p]) {
        while (p >= parts.ends[part]) ++part;
        const T* row = rows + p * width + begin;
        for (int64_t j = 0; j < n; ++j) sums[part][j] += static_cast<float>(row[j]);
      }
      for (int step = 1; step < parts.count; step *= 2) {
        for (int to = 0; to + step < parts.count; to += 2 * step) {
          for (int64_t j = 0; j < n; ++j) sums[to][j] += sums[to + step][j];
        }
      }
      float* const sum = sums[0];
      if (x != nullptr) {
        for (int64_t j = 0; j < n; ++j) sum[j] += static_cast<float>(x[begin + j]);
      }
      for (int64_t j = 0; j < n; ++j) y[begin + j] = T(sum[j]);
    });
  }
}

// The inputs of a node whose result is IndexedSlices of `indices` and `rows`, plus `x` if that is not -1.
struct SumInputs {
  int indices, rows;
  int x = -1;
};

// Every row of the result is written once, by one thread, and summed part by part in the order of positions: the same
// bits on any number of threads, and on several devices with a share of the positions each.
template <typename T>
Kernel MakeSumOfRows(const KernelSpec& spec, SumInputs in) {
  const Shape& dense = spec.output(0).shape;
  const int64_t limit = dense.dim(0), width = dense.Product(1, dense.rank());
  const auto n = static_cast<int32_t>(spec.input(in.indices).shape.num_elements());
  const Parts parts(n, spec.node.graph().batch_parts());
  const auto run = [=](const KernelArgs& args) {
    const int32_t* indices = args.input<int32_t>(in.indices);
    RETURN_IF_ERROR(CheckIds("index", indices, n, limit));
    int32_t* const first = static_cast<int32_t*>(args.scratch);
    int32_t* const next = first + limit;
    LinkPositions(indices, n, first, limit, next);
    const T* const x = in.x < 0 ? nullptr : args.input<T>(in.x);
    ParallelFor(limit, Grain(width * static_cast<int64_t>(sizeof(T))), [&](int64_t begin, int64_t end) {
      for (int64_t v = begin; v < end; ++v) {
        T* const row = args.output<T>(0) + v * width;
        const T* const x_row = x == nullptr ? nullptr : x + v * width;
        if (first[v] >= 0) {
          SumRows(x_row, args.input<T>(in.rows), width, next, first[v], parts, row);
        } else if (x == nullptr) {
          std::memset(static_cast<void*>(row), 0, width * sizeof(T));
        } else if (x_row != row) {
          std::memcpy(static_cast<void*>(row), x_row, width * sizeof(T));
        }
      }
    });
    return absl::OkStatus();
  };
  return {.run = run, .scratch_bytes = (limit + n) * static_cast<int64_t>(sizeof(int32_t))};
}

absl::StatusOr<Kernel> MakeIndexedSlices(const KernelSpec& spec) {
  constexpr SumInputs kInputs = {.indices = indexed_slices::kIndices, .rows = indexed_slices::kRows};
  return WithStorageType(spec.input(kInputs.rows).dtype,
                         [&]<typename T>(T) { return MakeSumOfRows<T>(spec, kInputs); });
}

template <typename T>
Kernel MakeAddRows(const KernelSpec& spec) {
  return MakeSumOfRows<T>(spec, {.indices = add_rows::kIndices, .rows = add_rows::kRows, .x = add_rows::kX});
}

template <typename Index, typename T>
Kernel MakeOneHotOf(const KernelSpec& spec) {
  const int64_t n = spec.input(0).shape.num_elements(), depth = spec.output(0).shape.dim(-1);
  return {[=](const KernelArgs& args) {
    ParallelFor(n, Grain(depth * static_cast<int64_t>(sizeof(T))), [&](int64_t begin, int64_t end) {
      T* const y = args.output<T>(0);
      std::fill(y + begin * depth, y + end * depth, T(0.0f));
      for (int64_t i = begin; i < end; ++i) {
        const int64_t index = args.input<Index>(0)[i];
        if (index >= 0 && index < depth) y[i * depth + index] = T(1.0f);
      }
    });
    return absl::OkStatus();
  }};
}

absl::StatusOr<Kernel> MakeOneHot(const KernelSpec& spec) {
  return WithStorageType(spec.output(0).dtype, [&]<typename T>(T) {
    return spec.input(0).dtype == DType::kInt32 ? MakeOneHotOf<int32_t, T>(spec) : MakeOneHotOf<int64_t, T>(spec);
  });
}

const bool registered = [] {
  RegisterKernel({.op = op::Gather, .device_kind = "cpu", .dtypes = AllTypes(), .make = MakeGather});
  RegisterKernel({.op = op::IndexedSlices, .device_kind = "cpu", .dtypes = {DType::kInt32}, .make = MakeIndexedSlices});
  RegisterKernel({
      .op = op::AddRows,
      .device_kind = "cpu",
      .dtypes = StorageTypes(),
      .make = ForStorageType([]<typename T>(const KernelSpec& spec, T) { return MakeAddRows<T>(spec); }),
      .in_place = {{add_rows::kY, add_rows::kX}},
  });
  RegisterKernel(
      {.op = op::OneHot, .device_kind = "cpu", .dtypes = {DType::kInt32, DType::kInt64}, .make = MakeOneHot});
  return true;
}();

}  // namespace
}  // namespace official::compute
