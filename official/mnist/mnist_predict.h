// Classification of image files with a trained model.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "utils/train/estimator.h"

namespace official::mnist {

// Prints class and probabilities of every image in `files`, one line each: PNG files of 28 x 28 pixels (grey, or colour
// taken as its luma; white digits on black, as in MNIST) and IDX files of such images, plain or .gz. With `json` one
// object a line: {"file", "index" within the file, "class", "probabilities"}.
absl::Status PredictFiles(train::Estimator& estimator, const std::vector<std::string>& files, bool json,
                          std::ostream& out);

}  // namespace official::mnist
