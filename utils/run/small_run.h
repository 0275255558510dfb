// Helpers for tests of training programs: a configuration for small runs, and access to the files of a run.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "utils/run/config.h"
#include "utils/train/checkpoint/checkpoint_dir.h"

namespace official::run {

// Returns a name that no file has yet, in the test's own directory.
std::string NewDirectory(const std::string& name);

// Returns the shared flags of a run on the CPU with new directories, not made yet: one epoch, results as JSON.
Config SmallRun(int batch_size);

// Returns the evaluations among the results that a run has printed as JSON, line by line.
std::vector<std::string> EvaluationsIn(const std::string& results);

std::unique_ptr<train::BundleReader> Checkpoint(const Config& config);
// Checks that the latest checkpoints of two runs hold the same tensors, bit for bit.
void CheckSameBits(const Config& a, const Config& b);

// Returns the losses in metric.log, in order: with log_every_n_steps = 1 one per step, and those of the evaluations.
std::vector<double> Losses(const Config& config);

// Returns the last table of samples in the event files of evaluations, its first row the names of the columns; empty
// if there is none.
std::vector<std::vector<std::string>> LastSamples(const Config& config);

}  // namespace official::run
