// Runs of mnist_main's loop on a small data set, for tests.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "official/mnist/mnist_run.h"
#include "utils/run/small_run.h"

namespace official::mnist {

using run::NewDirectory;

// Writes training and test images that are easy to tell apart to a new data_dir; returns a configuration with it and a
// new model_dir.
MnistConfig SmallConfig(int train_examples = 250, int test_examples = 60);

// Returns what a run writes as results; the run must succeed.
std::string Run(const MnistConfig& config);
absl::Status RunStatus(const MnistConfig& config);

}  // namespace official::mnist
