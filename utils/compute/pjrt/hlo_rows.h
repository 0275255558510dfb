// Rows of tables by their indices in StableHLO, and checks of such indices.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"
#include "utils/compute/pjrt/hlo_builder.h"

namespace official::compute {

// bool: true where an integer is outside [0, limit).
HloValue HloIsOutside(HloBuilder& hlo, const HloValue& x, int64_t limit);

// Fails the run with InvalidArgument if an element of `wrong`, bool [n], is true. In the message, which the node's name
// precedes, $0 is the value of `shown`, integers [n], at the first such place, and $1 the place; where the elements are
// those of a matrix of so many `columns`, $1 is the column and $2 the row.
void HloCheckNone(const Node& node, HloBuilder& hlo, const HloValue& wrong, const HloValue& shown,
                  absl::string_view message, int64_t columns = 0);

// The rows [n, ...] of table [V, ...] at indices int32 [n] in [0, V); zeros if V is 0.
HloValue HloRowsAt(HloBuilder& hlo, const HloValue& table, const HloValue& indices);

// x [V, ...] plus rows [n, ...], of one type, at indices int32 [n] in [0, V).
HloValue HloAddRows(HloBuilder& hlo, const HloValue& x, const HloValue& indices, const HloValue& rows);

}  // namespace official::compute
