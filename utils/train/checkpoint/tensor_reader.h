// TensorReader: the tensors of a checkpoint by name, in whichever format they are stored.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "utils/compute/core/tensor.h"

namespace official::train {

// The description of a stored tensor.
struct StoredTensor {
  std::string name;
  std::optional<compute::DType> dtype = {};  // nothing for strings and other types that no compute::Tensor has
  std::string dtype_name;                    // TensorFlow's name of the type, also set for other types
  compute::Shape shape = {};
  int64_t num_bytes = 0;  // as stored
  std::string file = "";  // the file that has the bytes; empty if they are in several places
  int64_t offset = 0;     // of the first byte in `file`
};

// Damage is DataLoss; messages name file and tensor.
class TensorReader {
 public:
  virtual ~TensorReader() = default;

  // Returns all tensors in the order of their names.
  virtual std::vector<StoredTensor> ListTensors() const = 0;
  // Returns the description of a tensor; nothing if there is none of this name.
  virtual std::optional<StoredTensor> Find(const std::string& name) const = 0;

  // Returns the tensor, its checksum verified where the format has one. NotFound if there is none; Unimplemented if its
  // type is not a compute::DType. The size is the file's: compare Find() with what is expected before reading files of
  // unknown origin.
  virtual absl::StatusOr<compute::Tensor> Read(const std::string& name) const = 0;
  // Returns the elements of a string tensor, row-major.
  virtual absl::StatusOr<std::vector<std::string>> ReadStrings(const std::string& name) const = 0;
  // Reads the bytes of a tensor of any type and compares its checksum where the format has one, in little memory.
  virtual absl::Status Verify(const std::string& name) const = 0;
};

// Returns a tensor with any contents, aligned as Tensor's own; ResourceExhausted if there is no memory for it.
absl::StatusOr<compute::Tensor> AllocateForReading(compute::TensorType type);

}  // namespace official::train
