// CPU kernels of Embedding.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/compute/kernel/kernel.h"
#include "utils/compute/ops/embedding/embedding.h"
#include "utils/compute/ops/embedding/geometry.h"
#include "utils/compute/ops/packed/row_dropout.h"
#include "utils/compute/ops/rows/for_each_row.h"

namespace official::compute {
namespace {

absl::Status CheckIds(const int32_t* ids, int64_t rows, int64_t limit) {
  for (int64_t r = 0; r < rows; ++r) {
    if (ids[r] >= 0 && ids[r] < limit) continue;
    return absl::InvalidArgumentError(absl::StrCat("id ", ids[r], " of row ", r, " is outside [0, ", limit, ")"));
  }
  return absl::OkStatus();
}

absl::Status CheckLengths(const int32_t* offsets, int64_t batch, int64_t limit) {
  for (int64_t b = 0; b < batch; ++b) {
    if (offsets[b + 1] - offsets[b] <= limit) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("sequence ", b, " has ", offsets[b + 1] - offsets[b], " tokens, the positions ", limit, " rows"));
  }
  return absl::OkStatus();
}

template <typename T>
Kernel MakeEmbedding(const KernelSpec& spec) {
  namespace places = embedding;
  const Rows rows = RowsOf(spec.output(places::kY).shape);
  const int64_t num_ids = spec.input(places::kTable).shape.dim(0), length = spec.input(places::kPositions).shape.dim(0);
  const int64_t batch = spec.input(places::kOffsets).shape.dim(0) - 1;
  const auto scale = static_cast<float>(spec.attrs().GetFloat("scale"));
  const bool shift_right = spec.attrs().GetBool("shift_right");
  const RowDropout dropout(spec, places::kOffsets, places::kRandomState);
  return {[=](const KernelArgs& args) -> absl::Status {
    RETURN_IF_ERROR(dropout.CheckOffsets(args));
    const int32_t* const ids = args.input<int32_t>(places::kIds);
    const int32_t* const offsets = args.input<int32_t>(places::kOffsets);
    RETURN_IF_ERROR(CheckIds(ids, offsets[batch], num_ids));
    RETURN_IF_ERROR(CheckLengths(offsets, batch, length));
    ForEachRow(rows, [&](int64_t r) {
      T* const y = args.output<T>(places::kY) + r * rows.size;
      const PackedPosition at = dropout.PositionOf(args, r);
      if (dropout.IsPadding(at)) {
        std::fill_n(y, rows.size, T(0.0f));
        return;
      }
      const int64_t id_row = IdRow(shift_right, r, at);
      const int32_t id = id_row < 0 ? 0 : ids[id_row];
      const T* const entry = args.input<T>(places::kTable) + id * rows.size;
      const float* const position = args.input<float>(places::kPositions) + at.position * rows.size;
      if (id == 0) {
        dropout.ForEach(args, at, rows.size, [=](int64_t i, float factor) { y[i] = T(position[i] * factor); });
        return;
      }
      dropout.ForEach(args, at, rows.size, [=](int64_t i, float factor) {
        y[i] = T((static_cast<float>(entry[i]) * scale + position[i]) * factor);
      });
    });
    return absl::OkStatus();
  }};
}

template <typename T>
Kernel MakeEmbeddingGrad(const KernelSpec& spec) {
  namespace places = embedding_grad;
  const Rows rows = RowsOf(spec.input(places::kDy).shape);
  const auto scale = static_cast<float>(spec.attrs().GetFloat("scale"));
  const bool shift_right = spec.attrs().GetBool("shift_right");
  const RowDropout dropout(spec, places::kOffsets, places::kRandomState);
  return {[=](const KernelArgs& args) -> absl::Status {
    RETURN_IF_ERROR(dropout.CheckOffsets(args));
    ForEachRow(rows, [&](int64_t r) {
      const T* const dy = args.input<T>(places::kDy) + r * rows.size;
      T* const d_entry = args.output<T>(places::kRows) + r * rows.size;
      const PackedPosition at = dropout.PositionOf(args, r);
      const int64_t id_row = dropout.IsPadding(at) ? -1 : IdRow(shift_right, r, at);
      const int32_t id = id_row < 0 ? 0 : args.input<int32_t>(places::kIds)[id_row];
      args.output<int32_t>(places::kIndices)[r] = id;
      if (id == 0) {
        std::fill_n(d_entry, rows.size, T(0.0f));
        return;
      }
      dropout.ForEach(args, at, rows.size,
                      [=](int64_t i, float factor) { d_entry[i] = T(static_cast<float>(dy[i]) * scale * factor); });
    });
    return absl::OkStatus();
  }};
}

const bool registered[] = {
    RegisterKernel({
        .op = op::Embedding,
        .device_kind = "cpu",
        .dtypes = StorageTypes(),
        .make = ForStorageType([]<typename T>(const KernelSpec& spec, T) { return MakeEmbedding<T>(spec); }),
    }),
    RegisterKernel({
        .op = op::EmbeddingGrad,
        .device_kind = "cpu",
        .dtypes = StorageTypes(),
        .make = ForStorageType([]<typename T>(const KernelSpec& spec, T) { return MakeEmbeddingGrad<T>(spec); }),
        .in_place = {{embedding_grad::kRows, embedding_grad::kDy}},
    }),
};

}  // namespace
}  // namespace official::compute
