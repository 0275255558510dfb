// For tests: pairs that a user has chosen or not.
#pragma once

#include "utils/data/dataset.h"

namespace official::recommendation {

inline constexpr int kRandomUsers = 30, kRandomItems = 50;

// Returns n random pairs, every fifth of which is one that the user has chosen.
data::DatasetPtr RandomRatings(int64_t n, int seed = 8);

// Returns what an evaluation ranks: of each user an item that the user has chosen, and 20 others.
data::DatasetPtr RandomCandidates();

}  // namespace official::recommendation
