// The weights of examples, in the shape in which TensorFlow multiplies values by them.
#pragma once

#include "utils/compute/graph/graph.h"

namespace official::distribute {

// Returns `sample_weight` in a shape that is broadcast to that of `values`: without its last dimension, of size 1, if
// it has one dimension more than `values`, and with a last dimension of size 1 if it has one fewer and is no scalar.
// The graph fails with InvalidArgument if that is not broadcast to the shape of `values`. Source:
// squeeze_or_expand_dimensions in tensorflow/python/ops/losses/util.py.
compute::Value AlignSampleWeight(compute::Value sample_weight, compute::Value values);

}  // namespace official::distribute
