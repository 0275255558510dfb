// CUDA kernel of dropout: a thread for each draw of four random words.

#include "utils/compute/ops/dropout/dropout.h"

#include <algorithm>
#include <cstdint>

#include "utils/compute/core/dtype.h"
#include "utils/compute/core/random.h"
#include "utils/compute/cuda/cuda_device.h"
#include "utils/compute/cuda/cuda_status.h"
#include "utils/compute/cuda/launch.h"
#include "utils/compute/cuda/row_threads.h"
#include "utils/compute/ops/packed/row_dropout_cuda.h"
#include "utils/compute/ops/rows/rows.h"

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
  const int64_t count = spec.input(dropout::kX).shape.num_elements();
  const double rate = spec.attrs().GetFloat("rate");
  const Dropout dropout{.count = count,
                        .of_example = count / std::max<int64_t>(1, spec.input(dropout::kX).shape.dim(0)),
                        .stream = static_cast<uint32_t>(spec.attrs().GetInt("stream")),
                        .threshold = static_cast<uint32_t>(rate * 0x1p32),
                        .scale = static_cast<float>(1 / (1 - rate))};
  return {[dropout, stream = CudaDeviceOf(spec).stream()](const KernelArgs& args) {
    if (dropout.count == 0) return absl::OkStatus();
    const int64_t most_draws = (dropout.count + kWords - 1) / kWords + 1;  // the first and last may be shared
    Launch(Drop<T>, NumBlocks(most_draws, kThreads), kThreads, 0, stream, dropout,
           args.input<int64_t>(dropout::kRandomState), args.input<T>(dropout::kX), args.output<T>(dropout::kY));
    return LaunchStatus("Drop");
  }};
}

// y may be x.
template <typename Threads, typename T>
__global__ void __launch_bounds__(Threads::kBlock)
    DropRows(Rows rows, CudaRowDropout dropout, const int32_t* offsets, const int64_t* state, const T* x, T* y) {
  const int64_t row = Threads::Row(), size = rows.size;
  if (row >= rows.count) return;
  dropout.CheckOffsets(offsets, row, rows.count);
  const PackedPosition at = PositionOfRow(offsets, dropout.batch, row);
  const bool padding = at.sequence == dropout.batch;
  const T* const from = x + row * size;
  T* const to = y + row * size;
  dropout.ForEach(state, at, size, Threads::Lane(), Threads::kRowThreads,
                  [=](int64_t i, float factor) { to[i] = T(padding ? 0.0f : static_cast<float>(from[i]) * factor); });
}

template <typename T>
Kernel MakePackedDropout(const KernelSpec& spec) {
  const Rows rows = RowsOf(spec.input(packed_dropout::kX).shape);
  const CudaRowDropout dropout(spec, packed_dropout::kOffsets);
  return {[=, stream = CudaDeviceOf(spec).stream()](const KernelArgs& args) {
    if (rows.count == 0) return absl::OkStatus();
    WithRowThreads<1>(rows.size, [&]<typename Threads>(Threads) {
      Launch(DropRows<Threads, T>, NumBlocks(rows.count, Threads::kRowsOfBlock), Threads::kBlock, 0, stream, rows,
             dropout, args.input<int32_t>(packed_dropout::kOffsets), args.input<int64_t>(packed_dropout::kRandomState),
             args.input<T>(packed_dropout::kX), args.output<T>(packed_dropout::kY));
    });
    return LaunchStatus("DropRows");
  }};
}

const bool registered = [] {
  const auto add = [](OpName op, auto make) {
    RegisterKernel({op, "cuda", StorageTypes(), ForStorageType(make), {{0, 0}}});
  };
  add(op::Dropout, []<typename T>(const KernelSpec& spec, T) { return MakeDropout<T>(spec); });
  add(op::PackedDropout, []<typename T>(const KernelSpec& spec, T) { return MakePackedDropout<T>(spec); });
  return true;
}();

}  // namespace
}  // namespace official::compute
