// The rows of packed sequences in StableHLO: the sequence and the position that each row holds, and its dropout.
#pragma once

#include "absl/strings/string_view.h"
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
  // The same for each of `planes`, such as heads: float32 [planes, T, columns].
  HloValue DropFactors(Value random_state, int64_t planes, int64_t columns) const;

 private:
  const Node& node_;
  HloBuilder& hlo_;
  HloValue sequence_, position_, padding_;
};

}  // namespace official::compute
