// Classification of image files with a trained model.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "utils/compute/core/tensor.h"
#include "utils/train/estimator.h"

namespace official::mnist {

// Prints class and probabilities of every image in `files`, one line each: PNG files of 28 x 28 pixels (grey, or colour
// taken as its luma; white digits on black, as in MNIST) and IDX files of such images, plain or .gz. With `json` one
// object a line: {"file", "index" within the file, "class", "probabilities"}. Errors name the file. Of several files
// those that are missing or have no digits are logged, and the others follow; at the end the error is DataLoss.
absl::Status PredictFiles(train::Estimator& estimator, const std::vector<std::string>& files, bool json,
                          std::ostream& out);

// Does the same for the names in the lines that arrive at the descriptor `in`, as many at a time as there are, until
// its end. A file that is missing or has no digits is logged with the number of its line, and the others follow; at the
// end the error is DataLoss if there was such a file.
absl::Status PredictLines(train::Estimator& estimator, int in, bool json, std::ostream& out);

// Returns the grey values of a PNG file with these bytes, [1, 784] in [0, 1], as PredictFiles reads it; `name` is its
// name in messages. DataLoss if it is not PNG, is damaged or has another size.
absl::StatusOr<compute::Tensor> DecodePngDigit(const std::string& bytes, const std::string& name);

}  // namespace official::mnist
