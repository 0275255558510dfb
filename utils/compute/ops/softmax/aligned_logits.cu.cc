// CUDA kernel of CastAndPadRows: a thread converts, or sets to zero, as many elements as it stores at once.

#include <cstdint>

#include "utils/compute/core/dtype.h"
#include "utils/compute/cuda/cuda_device.h"
#include "utils/compute/cuda/cuda_status.h"
#include "utils/compute/cuda/launch.h"
#include "utils/compute/cuda/pack.h"
#include "utils/compute/ops/softmax/softmax.h"

namespace official::compute {
namespace {

constexpr int kThreads = 256;

// y [padded_size] = x [size] and zeros; kWidth divides both sizes.
template <int kWidth, typename T>
__global__ void __launch_bounds__(kThreads) CastAndPad(int64_t size, int64_t padded_size, const float* x, T* y) {
  const int64_t i = ThreadIndex<int64_t>() * kWidth;
  if (i >= padded_size) return;
  const Pack<float, kWidth> values = i < size ? LoadPack<kWidth>(x + i) : Pack<float, kWidth>{};
  StorePack(y + i, RoundPack<T>(values));
}

template <int kWidth, typename T>
Kernel MakeCastAndPad(const KernelSpec& spec) {
  const int64_t size = spec.input(0).shape.num_elements(), padded_size = spec.output(0).shape.num_elements();
  if (padded_size == 0) {
    return {[](const KernelArgs&) { return absl::OkStatus(); }};
  }
  return {[=, stream = CudaDeviceOf(spec).stream()](const KernelArgs& args) {
    Launch(CastAndPad<kWidth, T>, NumBlocks(padded_size, int64_t{kWidth} * kThreads), kThreads, 0, stream, size,
           padded_size, args.input<float>(0), args.output<T>(0));
    return LaunchStatus("CastAndPad");
  }};
}

template <typename T>
Kernel MakeCastAndPadRows(const KernelSpec& spec) {
  constexpr int kWidth = kWidestLoad<T>;
  const bool fits =
      spec.input(0).shape.num_elements() % kWidth == 0 && spec.output(0).shape.num_elements() % kWidth == 0;
  return fits ? MakeCastAndPad<kWidth, T>(spec) : MakeCastAndPad<1, T>(spec);
}

const bool registered = RegisterKernel({
    .op = op::CastAndPadRows,
    .device_kind = "cuda",
    .dtypes = {DType::kFloat32},
    .make = [](const KernelSpec& spec) -> absl::StatusOr<Kernel> {
      return spec.output(0).dtype == DType::kBFloat16 ? MakeCastAndPadRows<BFloat16>(spec)
                                                      : MakeCastAndPadRows<Half>(spec);
    },
});

}  // namespace
}  // namespace official::compute
