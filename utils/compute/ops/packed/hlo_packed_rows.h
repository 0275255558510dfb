// The rows of packed sequences in StableHLO: the sequence and the position that each row holds, and its dropout.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "utils/compute/graph/graph.h"
#include "utils/compute/pjrt/hlo_builder.h"

namespace official::compute {

// T rows of a node whose input `offsets`, int32 [B + 1], divides them into sequences, as PositionOfRow does.
class HloPackedRows {
 public:
  // The run fails, as CheckOffsets says, if the offsets do not ascend from 0 or go beyond T. `what` begins the message.
  HloPackedRows(const Node& node, HloBuilder& hlo, int offsets, int64_t num_rows, absl::string_view what);

  const HloValue& sequence() const { return sequence_; }   // int32 [T]; B for padding
  const HloValue& position() const { return position_; }   // int32 [T], in the sequence
  const HloValue& is_padding() const { return padding_; }  // bool [T]

  // `per_row` [T] for all columns of [T, ...].
  HloValue Repeat(const HloValue& per_row, const Shape& shape) const;
  // x [T, ...] with zeros in the rows that are padding.
  HloValue ClearPadding(const HloValue& x) const;
  // float32 [T, columns]: 0 where an element is dropped, else 1 / (1 - rate), as the node's attributes dropout_rate and
  // stream and the value of `random_state` say.
  HloValue DropFactors(Value random_state, int64_t columns) const;
  // The same for each of `planes`, such as heads, and for n columns, int32 [n]: float32 [planes, T, n]. `keys` are
  // those of the node's draws.
  HloValue DropFactors(absl::Span<const HloValue> keys, int64_t planes, const HloValue& columns) const;
  // The SequenceKey of each row: the low and the high word of the key, the salt, ui32 [T] each.
  std::vector<HloValue> Keys(Value random_state) const;

 private:
  std::vector<HloValue> KeysOfStreams(Value random_state, absl::Span<const uint32_t> streams) const;

  const Node& node_;
  HloBuilder& hlo_;
  const HloValue offsets_;
  HloValue sequence_, position_, padding_;
};

}  // namespace official::compute
