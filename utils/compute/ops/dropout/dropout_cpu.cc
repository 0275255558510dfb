#include <algorithm>

#include "utils/compute/core/random.h"
#include "utils/compute/cpu/parallel.h"
#include "utils/compute/cpu/simd.h"
#include "utils/compute/runtime/kernel.h"

namespace official::compute {
namespace {

// Elements [begin, end) of the local batch; the first element of the batch is number `offset` of the global one.
// Element number n takes word n % 4 of draw n / 4.
template <typename T>
inline void DropRange(const T* x, T* y, int64_t begin, int64_t end, int64_t offset, uint64_t seed, uint32_t step,
                      uint32_t stream, uint32_t threshold, float scale) {
  constexpr int64_t kDraws = 64;  // a block of draws that vectorizes
  uint32_t words[4][kDraws];
  for (int64_t block = (begin + offset) / (4 * kDraws); block * 4 * kDraws < end + offset; ++block) {
    for (int64_t d = 0; d < kDraws; ++d) {
      const uint64_t draw = static_cast<uint64_t>(block * kDraws + d);
      const Philox4 w = Philox(seed, {static_cast<uint32_t>(draw), static_cast<uint32_t>(draw >> 32), stream, step});
      for (int k = 0; k < 4; ++k) words[k][d] = w[k];
    }
    const int64_t first = std::max(begin, block * 4 * kDraws - offset);
    const int64_t last = std::min(end, (block + 1) * 4 * kDraws - offset);
    for (int64_t i = first; i < last; ++i) {
      const int64_t n = i + offset - block * 4 * kDraws;
      y[i] = words[n % 4][n / 4] >= threshold ? T(static_cast<float>(x[i]) * scale) : T(0.0f);
    }
  }
}

template <typename T>
Kernel MakeDropout(const KernelSpec& spec) {
  const int64_t count = spec.input(0).shape.num_elements();
  const int64_t per_example = count / std::max<int64_t>(1, spec.input(0).shape.dim(0));
  const double rate = spec.attrs().GetFloat("rate");
  const auto stream = static_cast<uint32_t>(spec.attrs().GetInt("stream"));
  const auto threshold = static_cast<uint32_t>(rate * 0x1p32);
  const auto scale = static_cast<float>(1 / (1 - rate));
  return {[=](const KernelArgs& args) {
    const int64_t* state = args.input<int64_t>(1);
    ParallelFor(count, 16384, [&](int64_t begin, int64_t end) {
      WithSimd([&] {
        DropRange(args.input<T>(0), args.output<T>(0), begin, end, state[2] * per_example,
                  static_cast<uint64_t>(state[0]), static_cast<uint32_t>(state[1]), stream, threshold, scale);
      });
    });
    return absl::OkStatus();
  }};
}

const bool registered = RegisterKernel({
    .op = "Dropout",
    .device_kind = "cpu",
    .dtypes = {DType::kFloat32, DType::kBFloat16},
    .make = [](const KernelSpec& spec) -> absl::StatusOr<Kernel> {
      return spec.input(0).dtype == DType::kFloat32 ? MakeDropout<float>(spec) : MakeDropout<BFloat16>(spec);
    },
    .in_place = {{0, 0}},
});

}  // namespace
}  // namespace official::compute
