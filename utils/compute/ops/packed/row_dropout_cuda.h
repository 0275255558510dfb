// Dropout on the rows of packed sequences, for CUDA kernels.
#pragma once

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "utils/compute/cuda/cuda_device.h"
#include "utils/compute/ops/packed/packed_draws.h"
#include "utils/compute/ops/packed/packed_rows.h"

namespace official::compute {

// The same as RowDropout of row_dropout.h; it is passed to the kernel by value.
struct CudaRowDropout {
  CudaRowDropout(const KernelSpec& spec, int offsets_input)
      : rows(spec.output(0).shape.dim(0)),
        batch(spec.input(offsets_input).shape.dim(0) - 1),
        drop(spec.attrs().GetFloat("dropout_rate") > 0),
        stream(static_cast<uint32_t>(spec.attrs().GetInt("stream"))),
        rate(spec.attrs().GetFloat("dropout_rate")),
        error(CudaDeviceOf(spec).AddDataError(spec.node, [rows = spec.output(0).shape.dim(0)](int32_t value) {
          return absl::StrCat("row offset ", value, " does not follow the one before, from 0 on, or is above ", rows);
        })) {}

  int64_t rows, batch;
  bool drop;
  uint32_t stream;
  DropoutRate rate;
  DataError error;

  // Reports offsets that are not in order. It is called by threads [0, threads), by a few of them more than once.
  __device__ void CheckOffsets(const int32_t* offsets, int64_t thread, int64_t threads) const {
    if (thread == 0 && offsets[0] != 0) error.Report(offsets[0]);
    for (int64_t b = thread; b < batch; b += threads) {
      if (offsets[b] > offsets[b + 1] || offsets[b + 1] > rows) error.Report(offsets[b + 1]);
    }
  }

  // Calls f(i, factor) for the elements i of a row of n that are this thread's, `lane` of `lanes`; these are the same
  // elements at each call.
  template <typename F>
  __device__ void ForEach(const int64_t* random_state, const PackedPosition& at, int64_t n, int lane, int lanes,
                          F f) const {
    const SequenceKey key = drop ? KeyOfSequence(random_state, stream, at.sequence) : SequenceKey{};
    const int64_t draws = (n + kDrawColumns - 1) / kDrawColumns * kDrawLanes;
    for (int64_t draw = lane; draw < draws; draw += lanes) {
      Philox4 words = {};
      if (drop) words = PackedDraw(key, 0, static_cast<uint32_t>(at.position), static_cast<uint32_t>(draw));
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const int64_t i = draw / kDrawLanes * kDrawColumns + k * kDrawLanes + draw % kDrawLanes;
        if (i < n) f(i, !drop ? 1.0f : words[k] >= rate.threshold ? rate.scale : 0.0f);
      }
    }
  }
};

}  // namespace official::compute
