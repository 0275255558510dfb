// CPU kernel of dropout.

#include <algorithm>
#include <cstdint>

#include "utils/compute/core/status.h"
#include "utils/compute/cpu/parallel.h"
#include "utils/compute/cpu/philox_block.h"
#include "utils/compute/cpu/simd.h"
#include "utils/compute/kernel/kernel.h"
#include "utils/compute/ops/dropout/dropout.h"
#include "utils/compute/ops/packed/row_dropout.h"
#include "utils/compute/ops/rows/for_each_row.h"

namespace official::compute {
namespace {

constexpr int64_t kDraws = 32;          // made together
constexpr int64_t kBlock = 4 * kDraws;  // words, and elements, of as many draws

// words[4 * d + k] = Philox(seed, {draw first + d, stream, step})[k] of core/random.h, d in [0, kDraws).
inline void DrawBlock(uint64_t seed, uint64_t first, uint32_t stream, uint32_t step, uint32_t* words) {
  uint32_t counter[4][kDraws];
  for (int64_t d = 0; d < kDraws; ++d) {
    counter[0][d] = static_cast<uint32_t>(first + d);
    counter[1][d] = static_cast<uint32_t>((first + d) >> 32);
    counter[2][d] = stream;
    counter[3][d] = step;
  }
  PhiloxBlock(seed, counter);
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
  const int64_t count = spec.input(dropout::kX).shape.num_elements();
  const int64_t per_example = count / std::max<int64_t>(1, spec.input(dropout::kX).shape.dim(0));
  const double rate = spec.attrs().GetFloat("rate");
  const auto stream = static_cast<uint32_t>(spec.attrs().GetInt("stream"));
  const auto threshold = static_cast<uint32_t>(rate * 0x1p32);
  const auto scale = static_cast<float>(1 / (1 - rate));
  return {[=](const KernelArgs& args) {
    const int64_t* state = args.input<int64_t>(dropout::kRandomState);
    ParallelFor(count, 16384, [&](int64_t begin, int64_t end) {
      WithSimd([&] {
        DropRange(args.input<T>(dropout::kX), args.output<T>(dropout::kY), begin, end, state[2] * per_example,
                  static_cast<uint64_t>(state[0]), static_cast<uint32_t>(state[1]), stream, threshold, scale);
      });
    });
    return absl::OkStatus();
  }};
}

template <typename T>
Kernel MakePackedDropout(const KernelSpec& spec) {
  const Rows rows = RowsOf(spec.input(packed_dropout::kX).shape);
  const RowDropout dropout(spec, packed_dropout::kOffsets, packed_dropout::kRandomState);
  return {[=](const KernelArgs& args) -> absl::Status {
    RETURN_IF_ERROR(dropout.CheckOffsets(args));
    ForEachRow(rows, [&](int64_t r) {
      const T* const x = args.input<T>(packed_dropout::kX) + r * rows.size;
      T* const y = args.output<T>(packed_dropout::kY) + r * rows.size;
      const PackedPosition at = dropout.PositionOf(args, r);
      if (dropout.IsPadding(at)) {
        std::fill_n(y, rows.size, T(0.0f));
        return;
      }
      dropout.ForEach(args, at, rows.size,
                      [=](int64_t i, float factor) { y[i] = T(static_cast<float>(x[i]) * factor); });
    });
    return absl::OkStatus();
  }};
}

// The result may take the place of x, which is where both ops have it.
template <typename Make>
bool Register(OpName op, Make make) {
  return RegisterKernel({.op = op,
                         .device_kind = "cpu",
                         .dtypes = StorageTypes(),
                         .make = ForStorageType(make),
                         .in_place = {{dropout::kY, dropout::kX}}});
}

const bool registered[] = {
    Register(op::Dropout, []<typename T>(const KernelSpec& spec, T) { return MakeDropout<T>(spec); }),
    Register(op::PackedDropout, []<typename T>(const KernelSpec& spec, T) { return MakePackedDropout<T>(spec); }),
};

}  // namespace
}  // namespace official::compute
