// Trackable: variables that a checkpoint saves and restores, as objects that tf.train.Checkpoint tracks.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "utils/compute/core/tensor.h"
#include "utils/compute/graph/graph.h"

namespace official::distribute {

// Returns the value of a variable, or nothing to leave it as it is.
using ReadVariableFn =
    std::function<absl::StatusOr<std::optional<compute::Tensor>>(const compute::VariableSpec& variable)>;

class Trackable {
 public:
  virtual ~Trackable() = default;

  // Returns the names of all variables, sorted.
  virtual absl::StatusOr<std::vector<std::string>> TrackedNames() = 0;
  // Returns the value of one of them.
  virtual absl::StatusOr<compute::Tensor> ReadTracked(const std::string& name) = 0;
  // Assigns what `read` returns, on the chief, to the variables that exist, and to others when they are made. Errors:
  // those of `read` and of the assignment.
  virtual absl::Status RestoreVariables(ReadVariableFn read) = 0;

  // Only the chief has files. Returns, on all processes that have these variables, what the chief gives, or its error.
  virtual bool is_chief() const = 0;
  virtual absl::StatusOr<std::string> FromChief(const absl::StatusOr<std::string>& own) = 0;
};

}  // namespace official::distribute
