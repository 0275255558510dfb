// CPU kernels of the reductions. Every reduction is a sequence of passes that each reduce the middle dimension of an
// array [outer, rows, inner]. A pass is cut into tasks by its shape alone, so that the result does not depend on the
// number of threads. Within a task a few rows at a time are summed in float, these sums in double: a sum of a million
// elements is as exact as one of a hundred.

#include <algorithm>
#include <limits>
#include <memory>
#include <type_traits>
#include <vector>

#include "utils/compute/core/batch_parts.h"
#include "utils/compute/cpu/convert.h"
#include "utils/compute/cpu/parallel.h"
#include "utils/compute/cpu/simd.h"
#include "utils/compute/kernel/kernel.h"
#include "utils/compute/ops/elementwise/math.h"
#include "utils/compute/ops/reduction/passes.h"
#include "utils/compute/ops/reduction/reduction.h"

namespace official::compute {
namespace {

constexpr int64_t kMaxWidth = 1024;  // columns of a task
constexpr int64_t kMinWidth = 64;    // rows shorter than this are taken several at a time
constexpr int64_t kTaskElements = 65536;
constexpr int64_t kFloatRows = 64;   // rows added up in float before they go into the doubles
constexpr int64_t kShortRow = 1024;  // a single row of this size is added up in float

struct SumOp : math::Add {
  static constexpr float kIdentity = 0;
};
struct MaxOp : math::Maximum {
  static constexpr float kIdentity = -std::numeric_limits<float>::infinity();
};
struct MinOp : math::Minimum {
  static constexpr float kIdentity = std::numeric_limits<float>::infinity();
};

// total[j] = op(total[j], x[r * stride + j]) over all rows r, for j in [0, width)
template <typename Op, typename T>
inline void ReduceRows(const T* x, int64_t stride, int64_t rows, int64_t width, double* total) {
  const Op op{};
  float block[kMaxWidth];
  for (int64_t begin = 0; begin < rows; begin += kFloatRows) {
    const int64_t end = std::min(rows, begin + kFloatRows);
    std::fill_n(block, width, Op::kIdentity);
    int64_t r = begin;
    for (; r + 4 <= end; r += 4) {
      const T *x0 = x + r * stride, *x1 = x0 + stride, *x2 = x1 + stride, *x3 = x2 + stride;
#pragma omp simd
      for (int64_t j = 0; j < width; ++j) {
        const float low = op(static_cast<float>(x0[j]), static_cast<float>(x1[j]));
        const float high = op(static_cast<float>(x2[j]), static_cast<float>(x3[j]));
        block[j] = op(block[j], op(low, high));
      }
    }
    for (; r < end; ++r) {
#pragma omp simd
      for (int64_t j = 0; j < width; ++j) block[j] = op(block[j], static_cast<float>(x[r * stride + j]));
    }
#pragma omp simd
    for (int64_t j = 0; j < width; ++j) total[j] = op(total[j], static_cast<double>(block[j]));
  }
}

// The reduction of n elements, n at most kShortRow.
template <typename Op, typename T>
inline double ReduceShortRow(const T* x, int64_t n) {
  constexpr int64_t kLanes = 16;
  const Op op{};
  float lanes[kLanes];
  std::fill_n(lanes, kLanes, Op::kIdentity);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
#pragma omp simd
    for (int64_t k = 0; k < kLanes; ++k) lanes[k] = op(lanes[k], static_cast<float>(x[i + k]));
  }
  double result = Op::kIdentity;
  for (; i < n; ++i) result = op(result, static_cast<double>(static_cast<float>(x[i])));
  if (n >= kLanes) {
    for (const float lane : lanes) result = op(result, static_cast<double>(lane));
  }
  return result;
}

struct Pass : ReductionPass {
  bool has_short_rows() const { return inner == 1 && rows <= kShortRow; }
  // A task takes so many rows and columns.
  int64_t task_width() const { return std::clamp<int64_t>(inner, 1, kMaxWidth); }
  int64_t task_rows() const { return std::max<int64_t>(1, kTaskElements / task_width()); }
  int64_t row_tasks() const { return std::max<int64_t>(1, (rows + task_rows() - 1) / task_rows()); }
  // Partial results [outer, row_tasks, inner].
  int64_t scratch_bytes() const {
    return has_short_rows() ? 0 : outer * row_tasks() * inner * static_cast<int64_t>(sizeof(double));
  }
};

template <typename Op, typename T>
void RunShortRows(const Pass& pass, const T* x, float* y) {
  const int64_t grain = kTaskElements / 4 / std::max<int64_t>(16, pass.rows);
  ParallelFor(pass.outer, grain, [&](int64_t begin, int64_t end) {
    WithSimd([&] {
      for (int64_t o = begin; o < end; ++o) {
        y[o] = static_cast<float>(ReduceShortRow<Op>(x + o * pass.rows, pass.rows) / pass.divisor);
      }
    });
  });
}

// The partial result of rows [begin, end) of an array x [rows, inner], in columns [column, column + width).
template <typename Op, typename T>
void ReduceTask(const T* x, int64_t inner, int64_t begin, int64_t end, int64_t column, int64_t width, double* partial) {
  WithSimd([=] {
    double total[kMaxWidth];
    // Short rows lie one behind the other: taken `together` at a time they make one long row.
    const int64_t together = inner < kMinWidth ? kMinWidth / inner : 1;
    std::fill_n(total, width * together, static_cast<double>(Op::kIdentity));
    const T* const first = x + begin * inner + column;
    const int64_t whole = (end - begin) / together;
    // A loop, so that the call, which is inlined, is compiled once.
    const struct {
      const T* x;
      int64_t count, together;
    } parts[] = {{first, whole, together}, {first + whole * together * inner, (end - begin) - whole * together, 1}};
    for (const auto& part : parts) {
      ReduceRows<Op>(part.x, part.together * inner, part.count, part.together * width, total);
    }
    for (int64_t j = 0; j < width; ++j) {
      double result = total[j];
      for (int64_t k = 1; k < together; ++k) result = Op()(result, total[k * width + j]);
      partial[j] = result;
    }
  });
}

template <typename Op, typename T>
void RunPass(const Pass& pass, const T* x, float* y, double* partials) {
  if (pass.has_short_rows()) return RunShortRows<Op>(pass, x, y);
  const int64_t width = pass.task_width(), rows = pass.task_rows(), row_tasks = pass.row_tasks();
  const int64_t column_tasks = (pass.inner + width - 1) / width;
  const int64_t task_elements = std::max<int64_t>(1, std::min(rows, pass.rows) * width);
  ParallelFor(pass.outer * row_tasks * column_tasks, kTaskElements / 2 / task_elements,
              [&](int64_t begin_task, int64_t end_task) {
                for (int64_t task = begin_task; task < end_task; ++task) {
                  const int64_t column = task % column_tasks * width;
                  const int64_t row_task = task / column_tasks;  // counted through the outer dimension
                  const int64_t begin = row_task % row_tasks * rows;
                  ReduceTask<Op>(x + row_task / row_tasks * pass.rows * pass.inner, pass.inner, begin,
                                 std::min(pass.rows, begin + rows), column, std::min(width, pass.inner - column),
                                 partials + row_task * pass.inner + column);
                }
              });
  ParallelFor(pass.outer * column_tasks, kTaskElements / 8 / (row_tasks * width), [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t o = task / column_tasks, column = task % column_tasks * width;
      const int64_t n = std::min(width, pass.inner - column);
      double* const total = partials + o * row_tasks * pass.inner + column;
      for (int64_t t = 1; t < row_tasks; ++t) {
        for (int64_t j = 0; j < n; ++j) total[j] = Op()(total[j], total[t * pass.inner + j]);
      }
      float* const to = y + o * pass.inner + column;
      for (int64_t j = 0; j < n; ++j) to[j] = static_cast<float>(total[j] / pass.divisor);
    }
  });
}

int64_t Aligned(int64_t bytes) { return (bytes + 63) / 64 * 64; }

template <typename Op, typename T>
Kernel MakeReduction(const KernelSpec& spec) {
  std::vector<Pass> passes;
  for (const ReductionPass& pass : ReductionPasses(spec.node)) passes.push_back({pass});
  // Scratch: the partial results of one pass, then the results of the passes in float, but for that of the last if it
  // is the result of the op.
  constexpr bool kIsFloat = std::is_same_v<T, float>;
  int64_t partial_bytes = 0;
  for (const Pass& pass : passes) partial_bytes = std::max(partial_bytes, Aligned(pass.scratch_bytes()));
  int64_t scratch_bytes = partial_bytes;
  std::vector<int64_t> offsets;
  for (size_t i = 0; i + (kIsFloat ? 1 : 0) < passes.size(); ++i) {
    offsets.push_back(scratch_bytes);
    scratch_bytes += Aligned(passes[i].outer * passes[i].inner * static_cast<int64_t>(sizeof(float)));
  }
  const auto run = [passes, offsets](const KernelArgs& args) {
    double* const partials = static_cast<double*>(args.scratch);
    const auto result = [&](size_t i) {
      return i < offsets.size() ? reinterpret_cast<float*>(static_cast<char*>(args.scratch) + offsets[i])
                                : args.output<float>(0);
    };
    RunPass<Op>(passes[0], args.input<T>(0), result(0), partials);
    for (size_t i = 1; i < passes.size(); ++i) {
      RunPass<Op>(passes[i], const_cast<const float*>(result(i - 1)), result(i), partials);
    }
    if constexpr (!kIsFloat) {
      const Pass& last = passes.back();
      ParallelFor(last.outer * last.inner, kTaskElements, [&](int64_t begin, int64_t end) {
        FromFloats(result(passes.size() - 1) + begin, args.output<T>(0) + begin, end - begin);
      });
    }
    return absl::OkStatus();
  };
  return {.run = run, .scratch_bytes = scratch_bytes};
}

// The sum of x [batch, ..., channels], of rank 2 or more, over all but the channels, with the batch in parts
// (Graph::batch_parts).
Kernel MakeBiasAddGradInParts(const KernelSpec& spec, int num_parts) {
  const Shape& shape = spec.input(0).shape;
  const int64_t channels = shape.dim(-1), batch = shape.dim(0);
  const int64_t rows = shape.Product(1, shape.rank() - 1);  // of an example
  std::vector<Pass> passes;
  int64_t partial_bytes = 0;
  for (int p = 0; p < num_parts; ++p) {
    passes.push_back({1, ShareOf(batch, p, num_parts).size() * rows, channels});
    partial_bytes = std::max(partial_bytes, Aligned(passes.back().scratch_bytes()));
  }
  const auto run = [=](const KernelArgs& args) {
    float* const sums = reinterpret_cast<float*>(static_cast<char*>(args.scratch) + partial_bytes);
    for (int p = 0; p < num_parts; ++p) {
      const float* const x = args.input<float>(0) + ShareOf(batch, p, num_parts).begin * rows * channels;
      RunPass<SumOp>(passes[p], x, sums + p * channels, static_cast<double*>(args.scratch));
    }
    for (int64_t c = 0; c < channels; ++c) {
      args.output<float>(0)[c] = TreeSum(0, num_parts, [&](int64_t p) { return sums[p * channels + c]; });
    }
    return absl::OkStatus();
  };
  return {.run = run, .scratch_bytes = partial_bytes + num_parts * channels * static_cast<int64_t>(sizeof(float))};
}

template <typename Op>
void RegisterReduction(OpName op) {
  RegisterKernel({
      .op = op,
      .device_kind = "cpu",
      .dtypes = StorageTypes(),
      .make = [](const KernelSpec& spec) -> absl::StatusOr<Kernel> {
        const int num_parts = spec.node.graph().batch_parts();
        const TensorType& x = spec.input(0);
        if (num_parts > 1 && spec.node.Is(op::BiasAddGrad) && x.dtype == DType::kFloat32 && x.shape.rank() > 1) {
          return MakeBiasAddGradInParts(spec, num_parts);
        }
        return WithStorageType(x.dtype, [&]<typename T>(T) { return MakeReduction<Op, T>(spec); });
      },
  });
}

const bool registered = [] {
  RegisterReduction<SumOp>(op::Sum);
  RegisterReduction<SumOp>(op::Mean);
  RegisterReduction<MaxOp>(op::Max);
  RegisterReduction<MinOp>(op::Min);
  RegisterReduction<SumOp>(op::BiasAddGrad);
  return true;
}();

}  // namespace
}  // namespace official::compute
