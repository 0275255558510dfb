// Runs of mnist_main's loop on a small data set, for tests.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "official/mnist/mnist_run.h"
#include "utils/run/small_run.h"

namespace official::mnist {

using run::NewDirectory;

// Training and test images that are easy to tell apart, written to a new data_dir, and a new model_dir.
MnistConfig SmallConfig(int train_examples = 250, int test_examples = 60);

// What a run writes as results; it must succeed.
std::string Run(const MnistConfig& config);
absl::Status RunStatus(const MnistConfig& config);

}  // namespace official::mnist
