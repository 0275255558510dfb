#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "utils/compute/core/batch_parts.h"
#include "utils/compute/cpu/parallel.h"
#include "utils/compute/cpu/scratch.h"
#include "utils/compute/cpu/simd.h"
#include "utils/compute/ops/matmul/dense.h"
#include "utils/compute/ops/matmul/matmul.h"

namespace official::compute {
namespace {

// A row-major matrix of which some columns are wanted.
struct ColumnRange {
  const float* data;
  int64_t row_stride;
  int64_t begin, end;
};

// output [in, out] = x [batch, in]^T * dy [batch, out], summed over the batch in 1, 2 or 4 parts.
struct DenseGradient {
  int64_t batch, in, out;
  int64_t block;  // columns at a time, a multiple of a panel's
  int num_parts;
  const float *x, *dy;
  float* output;
};

// What depends on the instruction set.
struct DenseKernels {
  int64_t columns, depth;  // of a panel
  int64_t rows;            // of a tile
  void (*multiply)(const float* packed_x, int64_t batch, int64_t depth, const ColumnRange& weights, float* panel,
                   float* sums);
  void (*store)(const float* sums, int64_t batch, int64_t columns, const float* bias, bool relu, float* output,
                int64_t stride);
  void (*weight_gradient)(const DenseGradient&, int64_t row_begin, int64_t row_end, float* x_tile, float* packed,
                          float* sums);
};

#define OFFICIAL_ISA_FILE "utils/compute/ops/matmul/dense-inl.h"
#include "utils/compute/cpu/foreach_isa.h"

const DenseKernels& Kernels() { return HasAvx512() ? avx512::kDenseKernels : avx2::kDenseKernels; }

constexpr int64_t kLeastWeights = int64_t{3} << 19;  // 6 MB
// Of a weight gradient: what a core keeps near itself of dy.
constexpr int64_t kBlockFloats = int64_t{1} << 19;

// Counted over all replicas, so that 2 and 4 of them use the kernel that one device uses. A graph that says nothing of
// parts counts as one of 4.
bool IsBatchOfAtMost(int64_t most, const KernelSpec& spec, int64_t batch) {
  return batch * BatchPartsOfReplica(1) / spec.node.graph().batch_parts() <= most;
}

// Where this is faster than oneDNN, measured with batches of 1 to 4096, 256 to 16384 inputs and 128 to 4096 outputs.
// 32 is a panel's width; the inputs are packed by 16.
bool IsDenseForward(const KernelSpec& spec, const MatMulGeometry& g) {
  return spec.input(matmul::kA).dtype == DType::kFloat32 && g.batch == 1 && !g.transpose_a && !g.transpose_b &&
         IsBatchOfAtMost(512, spec, g.m) && g.n >= 512 && g.k * g.n >= kLeastWeights && g.n % 32 == 0 && g.k % 16 == 0;
}

// Where this is faster than oneDNN's products of the parts of the batch and their sum: on one core of a Zen 5 1.5 times
// for a batch of 576 and weights of [512, 512] to [33708, 512], even at 2048, slower at 4096.
bool IsDenseWeightGradient(const KernelSpec& spec, const MatMulGeometry& g) {
  return spec.input(matmul::kA).dtype == DType::kFloat32 && spec.node.num_inputs() <= matmul::kBias && g.batch == 1 &&
         g.transpose_a && !g.transpose_b && IsBatchOfAtMost(1024, spec, g.k) && g.n % 32 == 0 &&
         spec.node.graph().batch_parts() <= 4;
}

}  // namespace

std::optional<Kernel> MakeDenseForward(const KernelSpec& spec, const MatMulGeometry& g) {
  if (!IsDenseForward(spec, g)) return std::nullopt;
  const int64_t batch = g.m, depth = g.k, columns = g.n;
  const bool has_bias = spec.node.num_inputs() > matmul::kBias;
  const bool relu = has_bias && spec.attrs().Get<std::string>("activation") == "Relu";
  // Each part computes its own columns, at least 64.
  const int64_t parts = std::min<int64_t>(NumThreads() == 1 ? 1 : 4 * NumThreads(), columns / 64);
  const int64_t panels = columns / Kernels().columns;
  const int64_t panel_bytes = Kernels().columns * Kernels().depth * sizeof(float);
  ScratchPlan scratch;
  const int64_t packed_at = scratch.Add(batch * depth * sizeof(float));
  const int64_t sums_at = scratch.Add(batch * columns * sizeof(float));
  const int64_t panels_at = scratch.Add(MostThreads() * panel_bytes);

  const auto run = [=](const KernelArgs& args) {
    const float* const x = args.input<float>(matmul::kA);
    float* const packed = static_cast<float*>(ScratchAt(args, packed_at));  // [depth / 16][batch][16]
    ParallelFor(depth / 16, 8, [&](int64_t begin, int64_t end) {
      for (int64_t n = 0; n < batch; ++n) {
        for (int64_t k = begin; k < end; ++k) {
          std::memcpy(packed + (k * batch + n) * 16, x + n * depth + k * 16, 16 * sizeof(float));
        }
      }
    });
    ParallelFor(parts, 1, [&](int64_t first, int64_t last) {
      for (int64_t part = first; part < last; ++part) {
        const int64_t begin = panels * part / parts * Kernels().columns;
        const int64_t end = panels * (part + 1) / parts * Kernels().columns;
        float* const sums = static_cast<float*>(ScratchAt(args, sums_at)) + begin * batch;
        Kernels().multiply(packed, batch, depth, {args.input<float>(matmul::kB), columns, begin, end},
                           static_cast<float*>(ScratchAt(args, panels_at + ThreadNumber() * panel_bytes)), sums);
        Kernels().store(sums, batch, end - begin, has_bias ? args.input<float>(matmul::kBias) + begin : nullptr, relu,
                        args.output<float>(matmul::kY) + begin, columns);
      }
    });
    return absl::OkStatus();
  };
  return Kernel{.run = run, .scratch_bytes = scratch.bytes()};
}

std::optional<Kernel> MakeDenseWeightGradient(const KernelSpec& spec, const MatMulGeometry& g) {
  if (!IsDenseWeightGradient(spec, g)) return std::nullopt;
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

  const auto run = [=](const KernelArgs& args) {
    const DenseGradient gradient = {batch,
                                    in,
                                    out,
                                    block,
                                    num_parts,
                                    args.input<float>(matmul::kA),
                                    args.input<float>(matmul::kB),
                                    args.output<float>(matmul::kY)};
    ParallelFor(parts, 1, [&](int64_t first, int64_t last) {
      for (int64_t part = first; part < last; ++part) {
        const int64_t at = ThreadNumber() * thread_bytes;
        Kernels().weight_gradient(
            gradient, in * part / parts, in * (part + 1) / parts, static_cast<float*>(ScratchAt(args, at + x_at)),
            static_cast<float*>(ScratchAt(args, at + packed_at)), static_cast<float*>(ScratchAt(args, at + sums_at)));
      }
    });
    return absl::OkStatus();
  };
  return Kernel{.run = run, .scratch_bytes = MostThreads() * thread_bytes};
}

}  // namespace official::compute
