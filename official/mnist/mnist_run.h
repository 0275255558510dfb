// The run loop of mnist_main: data, model, training with evaluations in between, export, prediction.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "official/mnist/mnist_model.h"
#include "utils/flags/base.h"
#include "utils/flags/benchmark.h"
#include "utils/flags/image.h"
#include "utils/flags/performance.h"

namespace official::mnist {

struct MnistConfig {
  flags::BaseConfig base;
  flags::PerformanceConfig performance;
  flags::ImageConfig image;
  flags::BenchmarkConfig benchmark;
  ModelConfig model;
  std::vector<std::string> predict;  // image files to classify in place of training
  std::string flags_text;            // every flag, for the event file
};

// Trains and evaluates, or predicts if files are given. Results go to `results`, all else to the log.
absl::Status RunMnist(const MnistConfig& config, std::ostream& results);

}  // namespace official::mnist
