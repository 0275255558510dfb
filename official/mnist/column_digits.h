// For tests: digits that a network learns in a few steps.
#pragma once

#include <cstdint>

#include "utils/data/dataset.h"

namespace official::mnist {

// n images, each a bright column whose place is the label's, in noise.
data::DatasetPtr ColumnDigits(int64_t n, int seed = 5);

}  // namespace official::mnist
