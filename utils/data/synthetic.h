// Synthetic data: one constant example, repeated, to measure training without reading anything.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "utils/compute/core/dtype.h"
#include "utils/compute/core/shape.h"
#include "utils/data/batch.h"

namespace official::data {

// The shapes of a nested structure, flattened as described at Leaf: {{"a", {2}}, {"b/c", {3}}}. A single shape has the
// name "".
struct NamedShape {
  std::string name;
  compute::Shape shape;
};

struct SyntheticGroup {
  std::vector<NamedShape> shapes = {};                 // of one example
  std::variant<int64_t, double> value = int64_t{0};    // of every element of every leaf
  std::optional<compute::DType> dtype = std::nullopt;  // default: int32 for an integer, float32 for a real value
};

struct SyntheticOptions {
  SyntheticGroup input = {};
  SyntheticGroup label = {};        // without shapes, examples have no labels. A scalar is a shape: {{"", {}}}
  int64_t num_examples = kEndless;  // of one epoch
};

// Returns batches of the constant example, all of the same tensors (except a partial last batch). InvalidArgument and
// DataLoss as Batches(). Source: generate_synthetic_data in tensorflow/models r1.9,
// official/utils/misc/model_helpers.py, whose shapes include the batch dimension; here they do not.
absl::StatusOr<BatchSourcePtr> GenerateSyntheticData(const SyntheticOptions& options,
                                                     const BatchOptions& batch_options);

}  // namespace official::data
