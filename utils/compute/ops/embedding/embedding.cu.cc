// CUDA kernels of Embedding: a warp or a block for each token.

#include "utils/compute/ops/embedding/embedding.h"

#include "absl/strings/str_cat.h"
#include "utils/compute/core/dtype.h"
#include "utils/compute/cuda/cuda_device.h"
#include "utils/compute/cuda/cuda_status.h"
#include "utils/compute/cuda/launch.h"
#include "utils/compute/cuda/row_threads.h"
#include "utils/compute/ops/embedding/geometry.h"
#include "utils/compute/ops/packed/row_dropout_cuda.h"
#include "utils/compute/ops/rows/rows.h"

namespace official::compute {
namespace {

struct EmbeddingLimits {
  int64_t num_ids, length;
  float scale;
  bool shift_right;
  DataError id_error, length_error;
};

// A token without a row of the table or of the positions becomes zeros.
template <typename Threads, typename T>
__global__ void __launch_bounds__(Threads::kBlock)
    LookUp(Rows rows, CudaRowDropout dropout, EmbeddingLimits limits, const T* table, const int32_t* ids,
           const float* positions, const int32_t* offsets, const int64_t* state, T* output) {
  const int64_t row = Threads::Row(), size = rows.size;
  if (row >= rows.count) return;
  dropout.CheckOffsets(offsets, row, rows.count);
  const PackedPosition at = PositionOfRow(offsets, dropout.batch, row);
  bool zero = at.sequence == dropout.batch;
  int32_t id = 0;
  if (!zero) {
    const int64_t id_row = IdRow(limits.shift_right, row, at);
    id = id_row < 0 ? 0 : ids[id_row];
    if (ids[row] < 0 || ids[row] >= limits.num_ids) {
      if (Threads::Lane() == 0) limits.id_error.Report(ids[row]);
    }
    if (at.position < 0 || at.position >= limits.length) {
      if (Threads::Lane() == 0) limits.length_error.Report(static_cast<int32_t>(at.position + 1));
      zero = true;
    }
    zero = zero || id < 0 || id >= limits.num_ids;
  }
  T* const y = output + row * size;
  dropout.ForEach(state, at, size, Threads::Lane(), Threads::kRowThreads, [=](int64_t i, float factor) {
    float v = 0;
    if (!zero) {
      v = positions[at.position * size + i];
      if (id != 0) v += static_cast<float>(table[id * size + i]) * limits.scale;
    }
    y[i] = T(v * factor);
  });
}

// rows_out may be dy.
template <typename Threads, typename T>
__global__ void __launch_bounds__(Threads::kBlock)
    LookUpGradient(Rows rows, CudaRowDropout dropout, float scale, bool shift_right, const T* dy, const int32_t* ids,
                   const int32_t* offsets, const int64_t* state, T* rows_out, int32_t* ids_out) {
  const int64_t row = Threads::Row(), size = rows.size;
  if (row >= rows.count) return;
  const PackedPosition at = PositionOfRow(offsets, dropout.batch, row);
  const int64_t id_row = at.sequence == dropout.batch ? -1 : IdRow(shift_right, row, at);
  const int32_t id = id_row < 0 ? 0 : ids[id_row];
  if (Threads::Lane() == 0) ids_out[row] = id;
  dropout.ForEach(state, at, size, Threads::Lane(), Threads::kRowThreads, [=](int64_t i, float factor) {
    rows_out[row * size + i] = T(id == 0 ? 0.0f : static_cast<float>(dy[row * size + i]) * scale * factor);
  });
}

template <typename T>
Kernel MakeEmbedding(const KernelSpec& spec) {
  namespace places = embedding;
  const Rows rows = RowsOf(spec.output(places::kY).shape);
  const CudaRowDropout dropout(spec, places::kOffsets);
  CudaDevice& device = CudaDeviceOf(spec);
  const int64_t num_ids = spec.input(places::kTable).shape.dim(0), length = spec.input(places::kPositions).shape.dim(0);
  const EmbeddingLimits limits = {
      .num_ids = num_ids,
      .length = length,
      .scale = static_cast<float>(spec.attrs().GetFloat("scale")),
      .shift_right = spec.attrs().GetBool("shift_right"),
      .id_error = device.AddDataError(
          spec.node, [num_ids](int32_t value) { return absl::StrCat("id ", value, " is outside [0, ", num_ids, ")"); }),
      .length_error = device.AddDataError(spec.node, [length](int32_t value) {
        return absl::StrCat("a sequence has ", value, " tokens, the positions ", length, " rows");
      })};
  return {[=, stream = device.stream()](const KernelArgs& args) {
    if (rows.count == 0) return absl::OkStatus();
    WithRowThreads<1>(rows.size, [&]<typename Threads>(Threads) {
      Launch(LookUp<Threads, T>, NumBlocks(rows.count, Threads::kRowsOfBlock), Threads::kBlock, 0, stream, rows,
             dropout, limits, args.input<T>(places::kTable), args.input<int32_t>(places::kIds),
             args.input<float>(places::kPositions), args.input<int32_t>(places::kOffsets),
             dropout.drop ? args.input<int64_t>(places::kRandomState) : nullptr, args.output<T>(places::kY));
    });
    return LaunchStatus("LookUp");
  }};
}

template <typename T>
Kernel MakeEmbeddingGrad(const KernelSpec& spec) {
  namespace places = embedding_grad;
  const Rows rows = RowsOf(spec.input(places::kDy).shape);
  const CudaRowDropout dropout(spec, places::kOffsets);
  const auto scale = static_cast<float>(spec.attrs().GetFloat("scale"));
  const bool shift_right = spec.attrs().GetBool("shift_right");
  return {[=, stream = CudaDeviceOf(spec).stream()](const KernelArgs& args) {
    if (rows.count == 0) return absl::OkStatus();
    WithRowThreads<1>(rows.size, [&]<typename Threads>(Threads) {
      Launch(LookUpGradient<Threads, T>, NumBlocks(rows.count, Threads::kRowsOfBlock), Threads::kBlock, 0, stream, rows,
             dropout, scale, shift_right, args.input<T>(places::kDy), args.input<int32_t>(places::kIds),
             args.input<int32_t>(places::kOffsets), dropout.drop ? args.input<int64_t>(places::kRandomState) : nullptr,
             args.output<T>(places::kRows), args.output<int32_t>(places::kIndices));
    });
    return LaunchStatus("LookUpGradient");
  }};
}

const bool registered = [] {
  RegisterKernel({
      .op = op::Embedding,
      .device_kind = "cuda",
      .dtypes = StorageTypes(),
      .make = ForStorageType([]<typename T>(const KernelSpec& spec, T) { return MakeEmbedding<T>(spec); }),
  });
  RegisterKernel({
      .op = op::EmbeddingGrad,
      .device_kind = "cuda",
      .dtypes = StorageTypes(),
      .make = ForStorageType([]<typename T>(const KernelSpec& spec, T) { return MakeEmbeddingGrad<T>(spec); }),
      .in_place = {{embedding_grad::kRows, embedding_grad::kDy}},
  });
  return true;
}();

}  // namespace
}  // namespace official::compute
