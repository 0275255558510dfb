// Dropout on the rows of packed sequences, for CPU kernels.
#pragma once

#include <algorithm>
#include <cstdint>

#include "absl/status/status.h"
#include "utils/compute/kernel/kernel.h"
#include "utils/compute/ops/packed/keep_bits.h"
#include "utils/compute/ops/packed/packed_rows.h"

namespace official::compute {

// The dropout of a kernel whose node has the attributes dropout_rate and stream; output 0 has the rows. The random
// state is the input `state_input`, if the rate is above 0.
class RowDropout {
 public:
  RowDropout(const KernelSpec& spec, int offsets_input, int state_input)
      : rows_(spec.output(0).shape.dim(0)),
        batch_(spec.input(offsets_input).shape.dim(0) - 1),
        offsets_input_(offsets_input),
        state_input_(state_input),
        drop_(spec.attrs().GetFloat("dropout_rate") > 0),
        stream_(static_cast<uint32_t>(spec.attrs().GetInt("stream"))),
        rate_(spec.attrs().GetFloat("dropout_rate")) {}

  absl::Status CheckOffsets(const KernelArgs& args) const {
    return compute::CheckOffsets("row", args.input<int32_t>(offsets_input_), batch_, rows_);
  }
  PackedPosition PositionOf(const KernelArgs& args, int64_t row) const {
    return PositionOfRow(args.input<int32_t>(offsets_input_), batch_, row);
  }
  bool IsPadding(const PackedPosition& at) const { return at.sequence == batch_; }

  // Calls f(i, factor) for the elements i of a row of n, where factor is 0 or 1 / (1 - rate). Calls do not depend on
  // each other. It is to be called under WithSimd.
  template <typename F>
  void ForEach(const KernelArgs& args, const PackedPosition& at, int64_t n, F f) const {
    float factors[kFactorColumns];
    std::fill_n(factors, kFactorColumns, 1.0f);
    const SequenceKey key =
        drop_ ? KeyOfSequence(args.input<int64_t>(state_input_), stream_, at.sequence) : SequenceKey{};
    for (int64_t begin = 0; begin < n; begin += kFactorColumns) {
      if (drop_) DropFactors(key, 0, at.position, begin / kFactorColumns, rate_, factors);
      const int64_t count = std::min(kFactorColumns, n - begin);
#pragma GCC ivdep
      for (int64_t i = 0; i < count; ++i) f(begin + i, factors[i]);
    }
  }

 private:
  const int64_t rows_, batch_;
  const int offsets_input_, state_input_;
  const bool drop_;
  const uint32_t stream_;
  const DropoutRate rate_;
};

}  // namespace official::compute
