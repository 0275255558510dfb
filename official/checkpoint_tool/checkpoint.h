// The checkpoints that the tool reads and writes: TensorFlow's and safetensors.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "utils/train/checkpoint/tensor_reader.h"

namespace official::checkpoint_tool {

struct Checkpoint {
  std::string path;  // the prefix, or the safetensors file
  std::unique_ptr<train::TensorReader> reader;
  std::map<std::string, std::string> metadata;  // of safetensors
};

// Opens what a user has named: the directory of a run (its latest intact checkpoint), the prefix of a checkpoint or one
// of its files, a safetensors file of any name. Logs the note. NotFound if there is none; DataLoss if it is damaged or
// of another format, which the message names.
absl::StatusOr<Checkpoint> OpenCheckpoint(const std::string& named);

// Returns NotFound, with the names that are nearest to it, if the checkpoint has no variable of this name.
absl::Status CheckHasVariable(const Checkpoint& checkpoint, const std::string& name);

// A checkpoint to be written.
struct Output {
  std::string path;  // a prefix, or a file whose name ends in .safetensors
  bool overwrite = false;

  bool is_safetensors() const;
};

// Returns the error with which WriteCheckpoint would fail, as far as that is known before anything is read:
// AlreadyExists if there is such a checkpoint and it is not to be overwritten; InvalidArgument for a path that names a
// directory or one file of a TensorFlow checkpoint.
absl::Status CheckOutput(const Output& output);

// Returns InvalidArgument if a TensorFlow checkpoint cannot have a variable of this name: it is empty, or begins with a
// zero byte. The names of safetensors are any texts.
absl::Status CheckVariableName(const std::string& name);

// New names of variables, to their names in the source.
using VariableNames = std::map<std::string, std::string>;

// Writes the variables `names` of `source`, one after the other. The files appear when they are complete. What
// safetensors cannot hold (tensors of strings, or texts that are not UTF-8) is left out with a warning. Returns the
// number of variables written.
absl::StatusOr<int> WriteCheckpoint(const Checkpoint& source, const VariableNames& names, const Output& output);

// Returns "float32[3,4]".
std::string TypeText(const train::StoredTensor& variable);

}  // namespace official::checkpoint_tool
