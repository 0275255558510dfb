// ClassSamples: the samples of a classifier's evaluations.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "utils/compute/core/shape.h"
#include "utils/train/model.h"

namespace official::train {

// Returns a function that shows images with their class, the class that is predicted and its probability. Feature 0 is
// float32 [batch, ...], each example an image of shape `image` [height, width, channels]; label 0 is the class, int32
// [batch]; the predictions are classes int64 [batch] and probabilities float32 [batch, classes]. `name_of` returns the
// name of a class. Images of more than 112 pixels a side are shrunk: of the smallest number of n x n pixels that makes
// them no larger, but not more than the shorter side, the mean is taken.
EvalSamplesFn ClassSamples(compute::Shape image, std::function<std::string(int64_t class_id)> name_of);

}  // namespace official::train
