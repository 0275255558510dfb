#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "utils/compute/cpu/parallel.h"
#include "utils/compute/cpu/scratch.h"
#include "utils/compute/cpu/simd.h"
#include "utils/compute/ops/matmul/dense.h"

namespace official::compute {
namespace {

// A row-major matrix of which some columns are wanted.
struct ColumnRange {
  const float* data;
  int64_t row_stride;
  int64_t begin, end;
};

// What depends on the instruction set.
struct DenseKernels {
  int64_t columns, depth;  // of a panel
  void (*multiply)(const float* packed_x, int64_t batch, int64_t depth, const ColumnRange& weights, float* panel,
                   float* sums);
  void (*store)(const float* sums, int64_t batch, int64_t columns, const float* bias, bool relu, float* output,
                int64_t stride);
};

#define OFFICIAL_ISA_FILE "utils/compute/ops/matmul/dense-inl.h"
#include "utils/compute/cpu/foreach_isa.h"

const DenseKernels& Kernels() { return HasAvx512() ? avx512::kDenseKernels : avx2::kDenseKernels; }

// Where this is faster than oneDNN, measured with batches of 1 to 4096, 256 to 16384 inputs and 128 to 4096 outputs.
// 32 is a panel's width; the inputs are packed by 16.
bool IsDenseForward(const KernelSpec& spec, const MatMulGeometry& g) {
  constexpr int64_t kLeastWeights = int64_t{3} << 19;  // 6 MB
  return spec.input(0).dtype == DType::kFloat32 && g.batch == 1 && !g.transpose_a && !g.transpose_b && g.m <= 512 &&
         g.n >= 512 && g.k * g.n >= kLeastWeights && g.n % 32 == 0 && g.k % 16 == 0;
}

}  // namespace

std::optional<Kernel> MakeDenseForward(const KernelSpec& spec, const MatMulGeometry& g) {
  if (!IsDenseForward(spec, g)) return std::nullopt;
  const int64_t batch = g.m, depth = g.k, columns = g.n;
  const bool has_bias = spec.node.num_inputs() == 3;
  const bool relu = has_bias && spec.attrs().Get<std::string>("activation") == "Relu";
  // Each part computes its own columns; a thread takes at least 64.
  const int64_t parts = std::min<int64_t>(NumThreads(), columns / 64);
  const int64_t panels = columns / Kernels().columns;
  const int64_t panel_bytes = Kernels().columns * Kernels().depth * sizeof(float);
  ScratchPlan scratch;
  const int64_t packed_at = scratch.Add(batch * depth * sizeof(float));
  const int64_t sums_at = scratch.Add(batch * columns * sizeof(float));
  const int64_t panels_at = scratch.Add(parts * panel_bytes);

  const auto run = [=](const KernelArgs& args) {
    const float* const x = args.input<float>(0);
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
        Kernels().multiply(packed, batch, depth, {args.input<float>(1), columns, begin, end},
                           static_cast<float*>(ScratchAt(args, panels_at + part * panel_bytes)), sums);
        Kernels().store(sums, batch, end - begin, has_bias ? args.input<float>(2) + begin : nullptr, relu,
                        args.output<float>(0) + begin, columns);
      }
    });
    return absl::OkStatus();
  };
  return Kernel{.run = run, .scratch_bytes = scratch.bytes()};
}

}  // namespace official::compute
