// Runs of mnist_main's loop on a small data set, for tests.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "official/mnist/mnist_run.h"
#include "utils/train/checkpoint/checkpoint_dir.h"

namespace official::mnist {

// A name that no file has yet, in the test's own directory.
std::string NewDirectory(const std::string& name);

// Training and test images that are easy to tell apart, written to a new data_dir, and a new model_dir.
MnistConfig SmallConfig(int train_examples = 250, int test_examples = 60);

// What a run writes as results; it must succeed.
std::string Run(const MnistConfig& config);
absl::Status RunStatus(const MnistConfig& config);

std::unique_ptr<train::BundleReader> Checkpoint(const MnistConfig& config);
// Checks that the latest checkpoints of two runs hold the same tensors, bit for bit.
void CheckSameBits(const MnistConfig& a, const MnistConfig& b);

// The losses in metric.log, in order: with log_every_n_steps = 1 one per step.
std::vector<double> Losses(const MnistConfig& config);

}  // namespace official::mnist
