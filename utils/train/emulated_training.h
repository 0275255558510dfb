// For tests: trains a model on the CPU and on emulated GPUs and compares the two.
#pragma once

#include "utils/compute/core/dtype.h"
#include "utils/train/estimator.h"
#include "utils/train/training_difference.h"

namespace official::train {

// Trains five steps from the same seed on each: on one GPU and one CPU device, or on as many replicas of either. With
// several replicas it trains on the GPUs once more, the threads of their kernels in another order, then on as many
// workers with one GPU each, and requires the same bits.
//
// Where one op may be 1e-4 off in float32, 0.02 in bfloat16 and 0.0025 in float16 (docs/ops.md), five steps in float32
// stay within a tenth of one op's tolerance, since rounding errors cancel. With fewer bits they reach ten times one
// op's, and more where batch normalization divides by what few images have in common: values that are nearly the same
// exchange their order, and with it a maximum, or the sign of what a ReLU is given.
TrainingDifference TrainOnEmulatedGpu(const Model& model, const InputFn& input, compute::DType dtype,
                                      int num_replicas = 1);

}  // namespace official::train
