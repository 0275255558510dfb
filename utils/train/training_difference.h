// For tests: trains a model on several kinds of devices and compares what comes of it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "utils/compute/core/dtype.h"
#include "utils/distribute/strategy.h"
#include "utils/train/checkpoint/bundle.h"
#include "utils/train/estimator.h"

namespace official::train {

struct RecordedTraining {
  std::string model_dir;
  std::vector<double> losses;                 // of all steps
  std::unique_ptr<BundleReader> first, last;  // the checkpoints before the first step and after the last one
};

// The configuration of a training in a test, without the model_dir: what is computed does not depend on times, and the
// loss scale is that of --dtype.
EstimatorConfig TestConfig(compute::DType dtype = compute::DType::kFloat32);

// A new directory for the files of a run, in that of the test.
std::string NewModelDir(const Model& model);
// Trains on the devices of one process, always from the same seed. Appends the loss of each step to `losses`.
absl::Status Train(const distribute::StrategyOptions& options, const std::string& model_dir, const Model& model,
                   const InputFn& input, EstimatorConfig config, int num_steps, std::vector<double>& losses);
// Reads what a call of Train, which must have succeeded, has left.
RecordedTraining Recorded(const absl::Status& status, std::vector<double> losses, const std::string& model_dir);
// Trains on so many replicas, each a device of this kind with one thread.
RecordedTraining TrainOn(const std::string& device_kind, int num_replicas, const Model& model, const InputFn& input,
                         const EstimatorConfig& config, int num_steps);

// Requires that two checkpoints have the same tensors, to the bit.
void RequireSameBits(const BundleReader& a, const BundleReader& b);

// The distance between two trainings.
struct TrainingDifference {
  // The largest of the losses of all steps, relative to the CPU's; infinite if one is not finite.
  double loss = 0;
  // The largest of the tensors of the last checkpoint: variables, moving averages and the optimizer's slots. It is the
  // norm of the difference, but for what rounding the stored values makes of it, relative to the norm of what the
  // training has changed. With Adam single elements tell little: where a gradient is all but 0, its sign decides on a
  // whole step. Infinite if a tensor that holds no floats differs at all.
  double tensors = 0;
  std::string worst_tensor;
  // The largest of the same tensors relative to the tensor's own norm, rounding included.
  double of_norm = 0;
  std::string worst_of_norm;
};
// Requires that both began with the same bits in all tensors.
TrainingDifference DifferenceOf(const RecordedTraining& cpu, const RecordedTraining& other);

}  // namespace official::train
