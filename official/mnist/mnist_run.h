// The run of mnist_main: the MNIST model on its data.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "official/mnist/mnist_model.h"
#include "utils/run/config.h"

namespace official::mnist {

struct MnistConfig : run::Config {
  ModelConfig model;
  std::vector<std::string> predict;  // image files to classify instead of training; "-": those on standard input
};

// Trains and evaluates, or predicts if files are given. Results go to `results`, all else to the log.
absl::Status RunMnist(const MnistConfig& config, std::ostream& results);

}  // namespace official::mnist
