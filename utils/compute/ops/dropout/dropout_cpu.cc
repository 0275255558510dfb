// CPU kernel of dropout.

#include <algorithm>
#include <cstdint>

#include "utils/compute/cpu/parallel.h"
#include "utils/compute/cpu/simd.h"
#include "utils/compute/runtime/kernel.h"

namespace official::compute {
namespace {

constexpr int64_t kDraws = 32;          // made together
constexpr int64_t kBlock = 4 * kDraws;  // words, and elements, of as many draws

// words[4 * d + k] = Philox(seed, {draw first + d, stream, step})[k] of core/random.h, d in [0, kDraws). Round by round
// for all draws at once, since a loop over whole draws does not become vector code.
inline void DrawBlock(uint64_t seed, uint64_t first, uint32_t stream, uint32_t step, uint32_t* words) {
  uint32_t counter[4][kDraws];
  for (int64_t d = 0; d < kDraws; ++d) {
    counter[0][d] = static_cast<uint32_t>(first + d);
    counter[1][d] = static_cast<uint32_t>((first + d) >> 32);
    counter[2][d] = stream;
    counter[3][d] = step;
  }
  auto k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
#pragma omp simd
    for (int64_t d = 0; d < kDraws; ++d) {
      const uint64_t p0 = uint64_t{0xD2511F53} * counter[0][d];
      const uint64_t p1 = uint64_t{0xCD9E8D57} * counter[2][d];
      counter[0][d] = static_cast<uint32_t>(p1 >> 32) ^ counter[1][d] ^ k0;
      counter[1][d] = static_cast<uint32_t>(p1);
      counter[2][d] = static_cast<uint32_t>(p0 >> 32) ^ counter[3][d] ^ k1;
      counter[3][d] = static_cast<uint32_t>(p0);
    }
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
#pragma GCC ivdep
  for (int64_t d = 0; d < kDraws; ++d) {
    for (int k = 0; k < 4; ++k) words[4 * d + k] = counter[k][d];
  }
}

// Elements [begin, end) of the local batch; the first element of the batch is number `offset` of the global one.
// Element number n takes word n % 4 of draw n / 4.
template <typename T>
inline void DropRange(const T* x, T* y, int64_t begin, int64_t end, int64_t offset, uint64_t seed, uint32_t step,
                      uint32_t stream, uint32_t threshold, float scale) {
  uint32_t words[kBlock];
  while (begin < end) {
    const int64_t block = (begin + offset) / kBlock;
    DrawBlock(seed, static_cast<uint64_t>(block * kDraws), stream, step, words);
    const int64_t last = std::min(end, (block + 1) * kBlock - offset);
    const uint32_t* word = words + (begin + offset - block * kBlock);
#pragma GCC ivdep
    for (int64_t i = 0; i < last - begin; ++i) {
      y[begin + i] = T(word[i] >= threshold ? static_cast<float>(x[begin + i]) * scale : 0.0f);
    }
    begin = last;
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
    .dtypes = StorageTypes(),
    .make = ForStorageType([]<typename T>(const KernelSpec& spec, T) { return MakeDropout<T>(spec); }),
    .in_place = {{0, 0}},
});

}  // namespace
}  // namespace official::compute
