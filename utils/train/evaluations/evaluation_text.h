// The line of the log that ends an evaluation.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/types/span.h"

namespace official::train {

// Returns "Saving dict for global step 2400: accuracy = 0.9892, global_step = 2400, loss = 0.0347816", the results in
// their order. global_step is an integer, the others are printed as numpy.float32, which they are in TensorFlow.
// Source: _dict_to_str of tensorflow/python/estimator/estimator.py, 1.10.
std::string SavingDict(int64_t step, absl::Span<const std::pair<std::string, double>> results);

}  // namespace official::train
