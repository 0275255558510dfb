// CUDA kernels of L2Loss: each block sums a piece of one input in double, then one block adds the pieces in order.

#include "utils/compute/ops/l2_loss/l2_loss.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "utils/compute/core/status.h"
#include "utils/compute/cuda/cuda_device.h"
#include "utils/compute/cuda/cuda_status.h"
#include "utils/compute/cuda/launch.h"

namespace official::compute {
namespace {

constexpr int kThreads = 256;
constexpr int kPiece = 16384;     // elements of a block
constexpr int kMaxTensors = 512;  // of a launch: the list is a kernel argument, of which 32,764 bytes fit

struct Tensors {
  int num_tensors = 0;
  int first_block[kMaxTensors + 1] = {0};  // of each tensor, and the end
  int64_t sizes[kMaxTensors];
  const float* tensors[kMaxTensors];
};

// Returns, in thread 0, the sum of `value` over the threads of the block.
__device__ double BlockSum(double value) {
  __shared__ Shared<double[kThreads]> sums;
  const int thread = static_cast<int>(threadIdx.x);
  sums[thread] = value;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (thread < half) sums[thread] += sums[thread + half];
  }
  return sums[thread];
}

__global__ void __launch_bounds__(kThreads) SumSquares(const Tensors __grid_constant__ tensors, double* partial) {
  const int block = static_cast<int>(blockIdx.x);
  // The last tensor that begins at this block or before, and has elements.
  int low = 0, high = tensors.num_tensors;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (tensors.first_block[middle] <= block ? low : high) = middle;
  }
  const int64_t begin = static_cast<int64_t>(block - tensors.first_block[low]) * kPiece;
  const int64_t end = begin + kPiece < tensors.sizes[low] ? begin + kPiece : tensors.sizes[low];
  const float* const x = tensors.tensors[low];
  double sum = 0;
  for (int64_t i = begin + threadIdx.x; i < end; i += kThreads) sum += static_cast<double>(x[i]) * x[i];
  sum = BlockSum(sum);
  if (threadIdx.x == 0) partial[block] = sum;
}

__global__ void __launch_bounds__(kThreads) HalfOfSum(const double* partial, int64_t n, float* y) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < n; i += kThreads) sum += partial[i];
  sum = BlockSum(sum);
  if (threadIdx.x == 0) *y = static_cast<float>(sum / 2);
}

absl::StatusOr<Kernel> Make(const KernelSpec& spec) {
  const auto launches = std::make_shared<std::vector<Tensors>>();
  int64_t num_blocks = 0;
  for (int i = 0; i < spec.node.num_inputs(); ++i) {
    if (launches->empty() || launches->back().num_tensors == kMaxTensors) launches->emplace_back();
    Tensors& launch = launches->back();
    const int tensor = launch.num_tensors++;
    launch.sizes[tensor] = spec.input(i).shape.num_elements();
    const int64_t blocks = (launch.sizes[tensor] + kPiece - 1) / kPiece;
    launch.first_block[tensor + 1] = launch.first_block[tensor] + static_cast<int>(blocks);
    num_blocks += blocks;
  }
  Kernel kernel;
  kernel.scratch_bytes = std::max<int64_t>(1, num_blocks) * static_cast<int64_t>(sizeof(double));
  kernel.run = [launches, num_blocks, stream = CudaDeviceOf(spec).stream()](const KernelArgs& args) -> absl::Status {
    double* const partial = static_cast<double*>(args.scratch);
    int next = 0;
    int64_t first = 0;
    for (Tensors& launch : *launches) {
      for (int i = 0; i < launch.num_tensors; ++i) launch.tensors[i] = args.input<float>(next++);
      const int blocks = launch.first_block[launch.num_tensors];
      if (blocks == 0) continue;
      Launch(SumSquares, blocks, kThreads, 0, stream, launch, partial + first);
      RETURN_IF_ERROR(LaunchStatus("SumSquares"));
      first += blocks;
    }
    Launch(HalfOfSum, 1, kThreads, 0, stream, partial, num_blocks, args.output<float>(0));
    return LaunchStatus("HalfOfSum");
  };
  return kernel;
}

const bool registered =
    RegisterKernel({.op = op::L2Loss, .device_kind = "cuda", .dtypes = {DType::kFloat32}, .make = Make});

}  // namespace
}  // namespace official::compute
