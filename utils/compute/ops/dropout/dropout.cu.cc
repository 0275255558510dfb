// CUDA kernel of dropout: a thread for each draw of four random words.

#include <algorithm>
#include <cstdint>

#include "utils/compute/core/dtype.h"
#include "utils/compute/core/random.h"
#include "utils/compute/cuda/cuda_device.h"
#include "utils/compute/cuda/cuda_status.h"
#include "utils/compute/cuda/kernels.h"
#include "utils/compute/cuda/launch.h"

namespace official::compute {
namespace {

constexpr int kThreads = 256;
constexpr int kWords = 4;  // of a draw

struct Dropout {
  int64_t count, of_example;  // elements
  uint32_t stream;
  uint32_t threshold;  // words below it drop
  float scale;
};

// Element i of the local batch is number state[2] * of_example + i of the global one; number n takes word n % 4 of draw
// n / 4, as on the CPU. y may be x.
template <typename T>
__global__ void __launch_bounds__(kThreads) Drop(Dropout dropout, const int64_t* state, const T* x, T* y) {
  const int64_t offset = state[2] * dropout.of_example;
  const int64_t draw = offset / kWords + ThreadIndex<int64_t>();
  const int64_t begin = draw * kWords - offset;  // the local element of word 0
  if (begin >= dropout.count) return;
  const Philox4 words =
      Philox(static_cast<uint64_t>(state[0]), {static_cast<uint32_t>(draw), static_cast<uint32_t>(draw >> 32),
                                               dropout.stream, static_cast<uint32_t>(state[1])});
#pragma unroll
  for (int k = 0; k < kWords; ++k) {
    const int64_t i = begin + k;
    if (i < 0 || i >= dropout.count) continue;
    y[i] = T(words[k] >= dropout.threshold ? static_cast<float>(x[i]) * dropout.scale : 0.0f);
  }
}

template <typename T>
Kernel MakeDropout(const KernelSpec& spec) {
  const int64_t count = spec.input(0).shape.num_elements();
  const double rate = spec.attrs().GetFloat("rate");
  const Dropout dropout{.count = count,
                        .of_example = count / std::max<int64_t>(1, spec.input(0).shape.dim(0)),
                        .stream = static_cast<uint32_t>(spec.attrs().GetInt("stream")),
                        .threshold = static_cast<uint32_t>(rate * 0x1p32),
                        .scale = static_cast<float>(1 / (1 - rate))};
  return {[dropout, stream = CudaDeviceOf(spec).stream()](const KernelArgs& args) {
    if (dropout.count == 0) return absl::OkStatus();
    const int64_t most_draws = (dropout.count + kWords - 1) / kWords + 1;  // the first and last may be shared
    Drop<<<NumBlocks(most_draws, kThreads), kThreads, 0, stream>>>(dropout, args.input<int64_t>(1), args.input<T>(0),
                                                                   args.output<T>(0));
    return LaunchStatus("Drop");
  }};
}

}  // namespace

void RegisterDropoutCuda(KernelRegistry& kernels) {
  kernels.Add({
      .op = "Dropout",
      .device_kind = "cuda",
      .dtypes = StorageTypes(),
      .make = ForStorageType([]<typename T>(const KernelSpec& spec, T) { return MakeDropout<T>(spec); }),
      .in_place = {{0, 0}},
  });
}

}  // namespace official::compute
