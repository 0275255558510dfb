// For tests: pairs that a user has chosen or not.
#pragma once

#include "utils/data/dataset.h"

namespace official::recommendation {

inline constexpr int kRandomUsers = 30, kRandomItems = 50;

// Returns n random pairs, every fifth of which is one that the user has chosen.
data::DatasetPtr RandomRatings(int64_t n);

}  // namespace official::recommendation
