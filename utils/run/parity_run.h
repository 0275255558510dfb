// For tests: the common part of the programs that train a model on fixed batches, from a TensorFlow checkpoint, and
// write results to compare with TensorFlow's (tools/interop/parity.py). Their flags:
//   --inputs     bundle with the batches
//   --model_dir  holds the checkpoint to start from; the last one goes there, and the bundle "outputs"
//   --steps      global step to train to
#pragma once

#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "utils/compute/core/tensor.h"
#include "utils/train/checkpoint/bundle.h"
#include "utils/train/estimator.h"

namespace official::run {

using ParityOutputs = std::map<std::string, compute::Tensor>;

absl::StatusOr<std::unique_ptr<train::BundleReader>> OpenParityInputs();

// Returns the model on the CPU, with the variables of the checkpoint.
absl::StatusOr<std::unique_ptr<train::Estimator>> OpenParityModel(train::Model model);

// Trains to --steps, not at all if the checkpoint's step is that or a later one, and adds the loss before each update
// as "losses", float32 [steps].
absl::Status TrainAndAddLosses(train::Estimator& estimator, const train::InputFn& input_fn, ParityOutputs& outputs);

// Adds each of the results as "<group>/<name>", a float32 scalar.
void AddEvaluation(const std::string& group, const train::EvalResults& results, ParityOutputs& outputs);

absl::Status WriteParityOutputs(const ParityOutputs& outputs);

// Parses the flags and runs. Returns the exit status.
int ParityMain(int argc, char** argv, absl::Status (*run)());

}  // namespace official::run
