// The names of variables in object-based checkpoints, which tf.train.Checkpoint and Keras write: their tensors are
// named after the objects that hold them ("layer_with_weights-0/kernel/.ATTRIBUTES/VARIABLE_VALUE"), and a tensor of
// their own has the names that the variables had.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "utils/train/checkpoint/tensor_reader.h"

namespace official::train {

// Returns a reader of the same tensors, where a variable has its full name ("dense/kernel"), or, if several have that
// one, or it has none, the path of its object ("layer_with_weights-0/kernel"). Returns `reader` itself if its
// checkpoint is not object-based. DataLoss if the table of names is damaged.
absl::StatusOr<std::unique_ptr<TensorReader>> WithVariableNames(std::unique_ptr<TensorReader> reader);

}  // namespace official::train
