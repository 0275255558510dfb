#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

#include "utils/compute/core/batch_parts.h"
#include "utils/compute/cpu/convert.h"
#include "utils/compute/cpu/onednn.h"
#include "utils/compute/cpu/parallel.h"
#include "utils/compute/cpu/scratch.h"
#include "utils/compute/cpu/simd.h"
#include "utils/compute/ops/matmul/dense.h"
#include "utils/compute/ops/matmul/matmul.h"

namespace official::compute {
namespace {

// A row-major matrix of which some columns are wanted.
template <typename T>
struct ColumnRange {
  const T* data;
  int64_t row_stride;
  int64_t begin, end;
};

// The same of a matrix that is stored transposed: a column of it is a row of `data`. Those behind the last stand for
// it.
template <typename T>
struct TransposedColumns {
  const T* data;
  int64_t row_stride;
  int64_t begin, end;
  int64_t num_columns;  // of the whole matrix

  const T* Column(int64_t column) const { return data + std::min(column, num_columns - 1) * row_stride; }
};

template <typename T>
constexpr int64_t kLine = 64 / sizeof(T);  // elements of a cache line

// output [in, out] = x [batch, in]^T * dy [batch, out], summed over the batch in 1, 2 or 4 parts.
template <typename T>
struct DenseGradient {
  int64_t batch, in, out;
  int64_t block;  // columns at a time, a multiple of a panel's
  int num_parts;
  const float *x, *dy;
  T* output;
};

// What depends on the instruction set.
struct DenseKernels {
  int64_t columns, depth;  // of a panel
  int64_t rows;            // of a tile
  template <typename Columns>
  using MultiplyFunction = void (*)(const float* packed_x, int64_t batch, int64_t depth, const Columns& weights,
                                    float* panel, float* sums);
  MultiplyFunction<ColumnRange<float>> multiply;
  MultiplyFunction<ColumnRange<BFloat16>> multiply_bfloat16;
  MultiplyFunction<TransposedColumns<BFloat16>> multiply_transposed_bfloat16;
  void (*store)(const float* sums, int64_t batch, int64_t columns, const float* bias, bool relu, float* output,
                int64_t stride);
  template <typename T>
  using WeightGradientFunction = void (*)(const DenseGradient<T>&, int64_t row_begin, int64_t row_end, float* x_tile,
                                          float* packed, float* sums);
  WeightGradientFunction<float> weight_gradient;
  WeightGradientFunction<BFloat16> bfloat16_weight_gradient;
};

#define OFFICIAL_ISA_FILE "utils/compute/ops/matmul/dense-inl.h"
#include "utils/compute/cpu/foreach_isa.h"

const DenseKernels& Kernels() { return HasAvx512() ? avx512::kDenseKernels : avx2::kDenseKernels; }

constexpr int64_t kLeastWeights = int64_t{3} << 19;          // 6 MB
constexpr int64_t kLeastBFloat16Weights = int64_t{1} << 16;  // 128 kB
// Of a weight gradient: what a core keeps near itself of dy.
constexpr int64_t kBlockFloats = int64_t{1} << 19;

// Counted over all replicas, so that 2 and 4 of them use the kernel that one device uses, unless the limit lies between
// their uneven shares of the batch. A graph that says nothing of parts counts as one of 4.
bool IsBatchOfAtMost(int64_t most, const KernelSpec& spec, int64_t batch) {
  return batch * BatchPartsOfReplica(1) / spec.node.graph().batch_parts() <= most;
}

// Where this is faster than oneDNN, measured with batches of 1 to 4096, 256 to 16384 inputs and 128 to 4096 outputs; in
// bfloat16, than widening the weights for oneDNN. 32 is a panel's width; the inputs are packed by 16.
bool IsDenseForward(const KernelSpec& spec, const MatMulGeometry& g) {
  if (g.batch != 1 || g.m == 0 || g.transpose_a || !IsBatchOfAtMost(512, spec, g.m) || g.n < 512 || g.k % 16 != 0)
    return false;
  const DType dtype = spec.input(matmul::kA).dtype;
  if (dtype == DType::kFloat32) return !g.transpose_b && g.n % 32 == 0 && g.k * g.n >= kLeastWeights;
  return dtype == DType::kBFloat16 && !OnednnComputesIn(dtype) && (g.transpose_b || g.n % 32 == 0) &&
         g.k * g.n >= kLeastBFloat16Weights;
}

// Copies 16 numbers, as floats.
void Copy16(const float* from, float* to) { std::memcpy(to, from, 16 * sizeof(float)); }
void Copy16(const BFloat16* from, float* to) { ToFloats(from, to, 16); }

template <typename T>
Kernel MakeDenseForwardOf(const KernelSpec& spec, const MatMulGeometry& g) {
  constexpr bool kIsFloat = std::is_same_v<T, float>;
  const int64_t batch = g.m, depth = g.k, columns = g.n;
  const bool has_bias = spec.node.num_inputs() > matmul::kBias, transposed = g.transpose_b;
  const bool relu = has_bias && spec.attrs().Get<std::string>("activation") == "Relu";
  // Each part computes its own columns, at least 64.
  const int64_t parts = std::min<int64_t>(NumThreads() == 1 ? 1 : 4 * NumThreads(), columns / 64);
  const int64_t panels = (columns + Kernels().columns - 1) / Kernels().columns;
  const int64_t width = panels * Kernels().columns;
  const int64_t panel_bytes = Kernels().columns * Kernels().depth * sizeof(float);
  ScratchPlan scratch;
  const int64_t packed_at = scratch.Add(batch * depth * sizeof(float));
  const int64_t sums_at = scratch.Add(batch * width * sizeof(float));
  const int64_t panels_at = scratch.Add(MostThreads() * panel_bytes);
  const int64_t bias_at = scratch.Add(kIsFloat || !has_bias ? 0 : width * sizeof(float));

  const auto run = [=](const KernelArgs& args) {
    const T* const x = args.input<T>(matmul::kA);
    float* const packed = static_cast<float*>(ScratchAt(args, packed_at));  // [depth / 16][batch][16]
    ParallelFor(depth / 16, 8, [&](int64_t begin, int64_t end) {
      for (int64_t n = 0; n < batch; ++n) {
        for (int64_t k = begin; k < end; ++k) Copy16(x + n * depth + k * 16, packed + (k * batch + n) * 16);
      }
    });
    ParallelFor(parts, 1, [&](int64_t first, int64_t last) {
      for (int64_t part = first; part < last; ++part) {
        const int64_t begin = panels * part / parts * Kernels().columns;
        const int64_t end = panels * (part + 1) / parts * Kernels().columns;
        float* const sums = static_cast<float*>(ScratchAt(args, sums_at)) + begin * batch;
        float* const panel = static_cast<float*>(ScratchAt(args, panels_at + ThreadNumber() * panel_bytes));
        const T* const weights = args.input<T>(matmul::kB);
        const T* const bias = has_bias ? args.input<T>(matmul::kBias) + begin : nullptr;
        T* const y = args.output<T>(matmul::kY) + begin;
        if constexpr (kIsFloat) {
          Kernels().multiply(packed, batch, depth, {weights, columns, begin, end}, panel, sums);
          Kernels().store(sums, batch, end - begin, bias, relu, y, columns);
        } else {
          if (transposed) {
            Kernels().multiply_transposed_bfloat16(packed, batch, depth, {weights, depth, begin, end, columns}, panel,
                                                   sums);
          } else {
            Kernels().multiply_bfloat16(packed, batch, depth, {weights, columns, begin, end}, panel, sums);
          }
          float* const float_bias = static_cast<float*>(ScratchAt(args, bias_at)) + begin;
          if (has_bias) ToFloats(bias, float_bias, std::min(end, columns) - begin);
          for (int64_t column = begin; column < end; column += Kernels().columns) {
            float* const panel_sums = sums + (column - begin) * batch;
            Kernels().store(panel_sums, batch, Kernels().columns, has_bias ? float_bias + column - begin : nullptr,
                            relu, panel_sums, Kernels().columns);
            const int64_t count = std::min(Kernels().columns, columns - column);
            for (int64_t n = 0; n < batch; ++n) {
              FromFloats(panel_sums + n * Kernels().columns, y + n * columns + column - begin, count);
            }
          }
        }
      }
    });
    return absl::OkStatus();
  };
  return Kernel{.run = run, .scratch_bytes = scratch.bytes()};
}

// Where this is faster than oneDNN's products of the parts of the batch and their sum: on one core of a Zen 5 1.5 times
// for a batch of 576 and weights of [512, 512] to [33708, 512], even at 2048, slower at 4096.
bool IsDenseWeightGradient(const KernelSpec& spec, const MatMulGeometry& g) {
  const DType dtype = spec.input(matmul::kA).dtype;
  const bool in_float = dtype == DType::kFloat32 || (dtype == DType::kBFloat16 && !OnednnComputesIn(dtype));
  return in_float && g.m > 0 && g.n > 0 && g.k > 0 && spec.node.num_inputs() <= matmul::kBias && g.batch == 1 &&
         g.transpose_a && !g.transpose_b && IsBatchOfAtMost(1024, spec, g.k) && g.n % 32 == 0 &&
         spec.node.graph().batch_parts() <= 4;
}

template <typename T>
Kernel MakeDenseWeightGradientOf(const KernelSpec& spec, const MatMulGeometry& g) {
  constexpr bool kIsFloat = std::is_same_v<T, float>;
  const int64_t batch = g.k, in = g.m, out = g.n, columns = Kernels().columns;
  const int num_parts = spec.node.graph().batch_parts();
  // As many columns as stay near a core while it goes through all rows, in blocks of one size.
  const int64_t most = std::max(columns, kBlockFloats / batch / columns * columns);
  const int64_t blocks = (out + most - 1) / most;
  const int64_t block = (out / columns + blocks - 1) / blocks * columns;
  // Each part computes its own rows, with memory of the thread.
  const int64_t threads = NumThreads();
  const int64_t parts = std::clamp<int64_t>(in / Kernels().rows / 8, 1, threads == 1 ? 1 : 2 * threads);
  ScratchPlan thread_scratch;
  const int64_t x_at = thread_scratch.Add(batch * Kernels().rows * sizeof(float));
  const int64_t packed_at = thread_scratch.Add(batch * block * sizeof(float));
  const int64_t sums_at = thread_scratch.Add(num_parts * Kernels().rows * columns * sizeof(float));
  const int64_t thread_bytes = thread_scratch.bytes();
  ScratchPlan scratch;
  const int64_t threads_at = scratch.Add(MostThreads() * thread_bytes);
  const int64_t float_x_at = scratch.Add(kIsFloat ? 0 : batch * in * sizeof(float));
  const int64_t float_dy_at = scratch.Add(kIsFloat ? 0 : batch * out * sizeof(float));

  const auto run = [=](const KernelArgs& args) {
    const auto floats = [&](int input, int64_t at, int64_t n) -> const float* {
      if constexpr (kIsFloat) {
        return args.input<float>(input);
      } else {
        constexpr int64_t kGrain = 1 << 14;
        float* const to = static_cast<float*>(ScratchAt(args, at));
        ParallelFor(n, kGrain, [&](int64_t begin, int64_t end) {
          ToFloats(args.input<T>(input) + begin, to + begin, end - begin);
        });
        return to;
      }
    };
    const float* const x = floats(matmul::kA, float_x_at, batch * in);
    const float* const dy = floats(matmul::kB, float_dy_at, batch * out);
    const DenseGradient<T> gradient = {batch, in, out, block, num_parts, x, dy, args.output<T>(matmul::kY)};
    ParallelFor(parts, 1, [&](int64_t first, int64_t last) {
      for (int64_t part = first; part < last; ++part) {
        const auto own = [&](int64_t at) {
          return static_cast<float*>(ScratchAt(args, threads_at + ThreadNumber() * thread_bytes + at));
        };
        const auto compute = [&](auto weight_gradient) {
          weight_gradient(gradient, in * part / parts, in * (part + 1) / parts, own(x_at), own(packed_at),
                          own(sums_at));
        };
        if constexpr (kIsFloat) {
          compute(Kernels().weight_gradient);
        } else {
          compute(Kernels().bfloat16_weight_gradient);
        }
      }
    });
    return absl::OkStatus();
  };
  return Kernel{.run = run, .scratch_bytes = scratch.bytes()};
}

}  // namespace

std::optional<Kernel> MakeDenseForward(const KernelSpec& spec, const MatMulGeometry& g) {
  if (!IsDenseForward(spec, g)) return std::nullopt;
  return spec.input(matmul::kA).dtype == DType::kFloat32 ? MakeDenseForwardOf<float>(spec, g)
                                                         : MakeDenseForwardOf<BFloat16>(spec, g);
}

std::optional<Kernel> MakeDenseWeightGradient(const KernelSpec& spec, const MatMulGeometry& g) {
  if (!IsDenseWeightGradient(spec, g)) return std::nullopt;
  return spec.input(matmul::kA).dtype == DType::kFloat32 ? MakeDenseWeightGradientOf<float>(spec, g)
                                                         : MakeDenseWeightGradientOf<BFloat16>(spec, g);
}

}  // namespace official::compute
