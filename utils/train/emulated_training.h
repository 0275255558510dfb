// For tests: trains a model on the CPU and on an emulated GPU and compares the two.
#pragma once

#include "utils/compute/core/dtype.h"
#include "utils/train/estimator.h"

namespace official::train {

// How far the two may be apart. Where one op may be 1e-4 off in float32, 0.02 in bfloat16 and 0.0025 in float16
// (docs/ops.md), five steps in float32 stay within a tenth of one op's tolerance, since rounding errors cancel. With
// fewer bits they reach ten times one op's, and more where batch normalization divides by what few images have in
// common: values that are nearly the same exchange their order, and with it a maximum, or the sign of what a ReLU is
// given.
struct TrainingTolerance {
  // Of the loss of each step, relative to it.
  double loss;
  // Of each tensor of the last checkpoint: of the norm of the difference, relative to that of what the training has
  // changed. With Adam single elements tell little: where a gradient is all but 0, its sign decides on a whole step.
  double tensors;
};

// Trains five steps from the same seed on each, and checks that losses and checkpoints agree: variables, moving
// averages and the optimizer's slots. Tensors that are not floats must be the same.
void CheckEmulatedTraining(const Model& model, const InputFn& input, compute::DType dtype,
                           const TrainingTolerance& tolerance);

}  // namespace official::train
