// The random numbers of core/random.h in StableHLO: the same bits.
#pragma once

#include <array>

#include "utils/compute/pjrt/hlo_builder.h"

namespace official::compute {

// Philox of each element: the words of the key, the low one first, of the counter and of the result are ui32, all of
// one shape.
std::array<HloValue, 4> HloPhilox(HloBuilder& hlo, const std::array<HloValue, 2>& key, std::array<HloValue, 4> counter);

// The low and high word of ui64 values, as ui32.
HloValue HloLowWord(HloBuilder& hlo, const HloValue& x);
HloValue HloHighWord(HloBuilder& hlo, const HloValue& x);

// Joins values of one shape along a new dimension `dim`.
HloValue HloStack(HloBuilder& hlo, absl::Span<const HloValue> values, int dim);

}  // namespace official::compute
