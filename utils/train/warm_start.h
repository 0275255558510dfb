// Fine-tuning: a new run whose variables start with the values of another run's checkpoint.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "utils/train/checkpoint/tensor_reader.h"
#include "utils/train/replicas.h"

namespace official::train {

class WarmStart {
 public:
  // Opens `named`: a checkpoint ("run1/model.ckpt-600") or one of its files, or the latest checkpoint of a directory or
  // of its state file. The variables of an object-based checkpoint have their full names. NotFound if there is none.
  static absl::StatusOr<std::unique_ptr<WarmStart>> Open(const std::string& named);

  // Gives the variables of the model among `added` the values that the checkpoint has under the same name in the same
  // type and shape, and logs their number and the variables for which there is no such value: a head for other classes
  // keeps its initial values. Optimizer slots and counters are not taken. InvalidArgument if nothing fits.
  absl::Status Apply(const std::vector<compute::VariableSpec>& added, Replicas& replicas) const;

 private:
  WarmStart(std::string name, std::unique_ptr<TensorReader> reader)
      : name_(std::move(name)), reader_(std::move(reader)) {}

  const std::string name_;
  const std::unique_ptr<TensorReader> reader_;
};

}  // namespace official::train
