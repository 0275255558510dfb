// The data of the examples with a coordinator: heroes, and whether the avenger is among them.
#pragma once

#include <cstdint>

#include "utils/data/dataset.h"

namespace official::examples {

inline constexpr int kNumHeroes = 7, kHeroesOfExample = 3;

// Returns `count` examples: three different heroes, int32 [3] from 0 to kNumHeroes - 1, and the label, int32: 1 if the
// avenger, who is hero 0, is one of them.
data::DatasetPtr Heroes(int64_t count, uint64_t seed);

}  // namespace official::examples
