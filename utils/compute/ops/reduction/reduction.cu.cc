// CUDA kernels of the reductions: passes over the middle dimension of an array [outer, rows, inner], in double. A pass
// with few results is cut into chunks of rows, which a second pass adds up. The cuts depend on the shape alone, so the
// bits are the same in every run.

#include "utils/compute/ops/reduction/reduction.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <type_traits>
#include <vector>

#include "utils/compute/core/status.h"
#include "utils/compute/cuda/cuda_device.h"
#include "utils/compute/cuda/cuda_status.h"
#include "utils/compute/cuda/launch.h"
#include "utils/compute/ops/elementwise/math.h"
#include "utils/compute/ops/reduction/passes.h"

namespace official::compute {
namespace {

constexpr int kThreads = 256;
constexpr int kMaxWidth = 32;            // columns of a block
constexpr int kMinRowsOfThread = 16;     // below that a pass is not cut into more chunks
constexpr int64_t kEnoughBlocks = 1024;  // to keep a GPU busy

struct SumOp : math::Add {
  static constexpr double kIdentity = 0;
};
struct MaxOp : math::Maximum {
  static constexpr double kIdentity = -std::numeric_limits<double>::infinity();
};
struct MinOp : math::Minimum {
  static constexpr double kIdentity = std::numeric_limits<double>::infinity();
};

// Reduces x [outer, rows, inner] to y [outer, chunks, inner]. A block is an array of threads [slots, lanes, width]: a
// slot has the rows of one chunk, a lane every lanes-th of them, a thread one column.
struct Pass {
  int64_t outer, rows, inner, chunks;
  double divisor;
  int width, lanes;  // powers of two

  int slots() const { return kThreads / (width * lanes); }
  int64_t column_blocks() const { return (inner + width - 1) / width; }
  int64_t blocks() const { return (outer * chunks + slots() - 1) / slots() * column_blocks(); }
  int64_t results() const { return outer * chunks * inner; }
};

int PowerOfTwoFor(int64_t n, int64_t limit) {
  return static_cast<int>(std::bit_ceil(static_cast<uint64_t>(std::clamp<int64_t>(n, 1, limit))));
}

Pass MakePass(const ReductionPass& of, int64_t rows, int64_t chunks, double divisor) {
  Pass pass{of.outer, rows, of.inner, chunks, divisor, PowerOfTwoFor(of.inner, kMaxWidth), 1};
  pass.lanes = PowerOfTwoFor(rows / chunks, kThreads / pass.width);
  return pass;
}

// One pass, or one that leaves partial results and one that adds them up.
void AddPasses(const ReductionPass& of, std::vector<Pass>& passes) {
  const Pass whole = MakePass(of, of.rows, 1, of.divisor);
  const int64_t most = of.rows / (whole.lanes * kMinRowsOfThread);
  const int64_t chunks = std::min(most, kEnoughBlocks / std::max<int64_t>(1, whole.blocks()));
  if (chunks <= 1) {
    passes.push_back(whole);
  } else {
    passes.push_back(MakePass(of, of.rows, chunks, 1));
    passes.push_back(MakePass(of, chunks, 1, of.divisor));
  }
}

template <typename Op, typename In, typename Out>
__global__ void __launch_bounds__(kThreads) ReduceRows(const Pass pass, int64_t column_blocks, const In* x, Out* y) {
  const Op op{};
  const int thread = static_cast<int>(threadIdx.x), width = pass.width, lanes = pass.lanes;
  const int lane = thread / width % lanes, slot = thread / (width * lanes), slots = kThreads / (width * lanes);
  const int64_t column = blockIdx.x % column_blocks * width + thread % width;
  const int64_t row_task = blockIdx.x / column_blocks * slots + slot;  // outer * chunks + chunk
  const bool has_work = column < pass.inner && row_task < pass.outer * pass.chunks;
  double total = Op::kIdentity;
  if (has_work) {
    const int64_t chunk = row_task % pass.chunks;
    const int64_t begin = pass.rows * chunk / pass.chunks, end = pass.rows * (chunk + 1) / pass.chunks;
    const In* const from = x + row_task / pass.chunks * pass.rows * pass.inner + column;
#pragma unroll 4
    for (int64_t r = begin + lane; r < end; r += lanes) {
      total = op(total, ConvertElement<double>(from[r * pass.inner]));
    }
  }
  __shared__ Shared<double[kThreads]> totals;
  totals[thread] = total;
  for (int half = lanes / 2; half > 0; half /= 2) {
    __syncthreads();
    if (lane < half) totals[thread] = op(totals[thread], totals[thread + half * width]);
  }
  if (!has_work || lane != 0) return;
  const double result = totals[thread] / pass.divisor;
  if constexpr (std::is_same_v<Out, double>) {
    y[row_task * pass.inner + column] = result;
  } else {
    y[row_task * pass.inner + column] = Out(static_cast<float>(result));
  }
}

template <typename Op, typename T>
Kernel MakeReduction(const KernelSpec& spec) {
  std::vector<Pass> passes;
  for (const ReductionPass& pass : ReductionPasses(spec.node)) AddPasses(pass, passes);
  // Scratch: the results of the passes before the last.
  Kernel kernel;
  std::vector<int64_t> offsets;  // in doubles
  int64_t doubles = 0;
  for (size_t i = 0; i + 1 < passes.size(); ++i) {
    offsets.push_back(doubles);
    doubles += passes[i].results();
  }
  kernel.scratch_bytes = doubles * static_cast<int64_t>(sizeof(double));
  kernel.run = [passes, offsets, stream = CudaDeviceOf(spec).stream()](const KernelArgs& args) -> absl::Status {
    const auto launch = [&]<typename In, typename Out>(const Pass& pass, const In* x, Out* y) {
      if (pass.results() == 0) return absl::OkStatus();
      Launch(ReduceRows<Op, In, Out>, static_cast<unsigned>(pass.blocks()), kThreads, 0, stream, pass,
             pass.column_blocks(), x, y);
      return LaunchStatus("ReduceRows");
    };
    const auto between = [&](size_t i) { return static_cast<double*>(args.scratch) + offsets[i]; };
    const size_t last = passes.size() - 1;
    if (last == 0) return launch(passes[0], args.input<T>(0), args.output<T>(0));
    RETURN_IF_ERROR(launch(passes[0], args.input<T>(0), between(0)));
    for (size_t i = 1; i < last; ++i) {
      RETURN_IF_ERROR(launch(passes[i], static_cast<const double*>(between(i - 1)), between(i)));
    }
    return launch(passes[last], static_cast<const double*>(between(last - 1)), args.output<T>(0));
  };
  return kernel;
}

template <typename Op>
void Register(OpName op) {
  RegisterKernel({
      .op = op,
      .device_kind = "cuda",
      .dtypes = StorageTypes(),
      .make = ForStorageType([]<typename T>(const KernelSpec& spec, T) { return MakeReduction<Op, T>(spec); }),
  });
}

const bool registered = [] {
  Register<SumOp>(op::BiasAddGrad);
  Register<MaxOp>(op::Max);
  Register<SumOp>(op::Mean);
  Register<MinOp>(op::Min);
  Register<SumOp>(op::Sum);
  return true;
}();

}  // namespace
}  // namespace official::compute
