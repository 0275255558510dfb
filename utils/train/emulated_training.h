// For tests: trains a model on the CPU and on emulated GPUs and compares the two.
#pragma once

#include <string>

#include "utils/compute/core/dtype.h"
#include "utils/train/estimator.h"

namespace official::train {

// The distance between the two. Where one op may be 1e-4 off in float32, 0.02 in bfloat16 and 0.0025 in float16
// (docs/ops.md), five steps in float32 stay within a tenth of one op's tolerance, since rounding errors cancel. With
// fewer bits they reach ten times one op's, and more where batch normalization divides by what few images have in
// common: values that are nearly the same exchange their order, and with it a maximum, or the sign of what a ReLU is
// given.
struct TrainingDifference {
  // The largest of the losses of all steps, relative to the CPU's; infinite if one is not finite.
  double loss = 0;
  // The largest of the tensors of the last checkpoint: variables, moving averages and the optimizer's slots. It is the
  // norm of the difference, but for what rounding the stored values makes of it, relative to the norm of what the
  // training has changed. With Adam single elements tell little: where a gradient is all but 0, its sign decides on a
  // whole step. Infinite if a tensor that holds no floats differs at all.
  double tensors = 0;
  std::string worst_tensor;
};

// Trains five steps from the same seed on each: on one GPU and one CPU device, or on as many replicas of either. With
// several replicas it trains on the GPUs once more, the threads of their kernels in another order, then on as many
// workers with one GPU each, and requires the same bits.
TrainingDifference TrainOnEmulatedGpu(const Model& model, const InputFn& input, compute::DType dtype,
                                      int num_replicas = 1);

}  // namespace official::train
