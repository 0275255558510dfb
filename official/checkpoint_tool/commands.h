// The commands of checkpoint_tool. Each takes the words after its name, whose number is right, and prints its results
// to `out`: as text, or as JSON, one object a line. Errors are those of OpenCheckpoint, CheckOutput and WriteCheckpoint
// (checkpoint.h), and what is said here.
#pragma once

#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace official::checkpoint_tool {

using Words = std::vector<std::string>;

struct Options {
  bool json = false;
  int num_values = 8;                 // values of a variable that are shown
  double tolerance = 0;               // of a difference
  std::optional<int> last = {};       // the number of checkpoints to average
  std::vector<std::string> map = {};  // REGEX=REPLACEMENT
  bool overwrite = false;
};

// ls PATH: the checkpoints of a directory, and the variables of the latest or of the one that is named.
absl::Status List(const Words& words, const Options& options, std::ostream& out);

// show PATH [NAME...]: the values of all variables, or of these.
absl::Status Show(const Words& words, const Options& options, std::ostream& out);

// diff A B: names, types and values that differ. Unknown, which is exit status 1, if any do.
absl::Status Diff(const Words& words, const Options& options, std::ostream& out);

// average OUT PATH PATH...; with --last=N: average OUT DIRECTORY. Makes the directory OUT with a checkpoint of the mean
// of all float variables; all others, and the state of the run, are those of the last checkpoint. The flags and class
// names of its run are copied, so that its program can use OUT as --model_dir. InvalidArgument if the checkpoints do
// not have the same variables; AlreadyExists if OUT is not empty and not to be overwritten, or is in use by a run.
absl::Status Average(const Words& words, const Options& options, std::ostream& out);

// verify PATH: every checksum, and that every number is finite, of one checkpoint or all in a directory. Prints what is
// bad, with its file and place, and returns DataLoss if there is anything. A training may save and remove checkpoints
// in the directory meanwhile.
absl::Status Verify(const Words& words, const Options& options, std::ostream& out);

// rename IN OUT, with --map: new names for variables. InvalidArgument for a rule that changes nothing, and if two
// variables would have one name.
absl::Status Rename(const Words& words, const Options& options, std::ostream& out);

// convert IN OUT: from TensorFlow's format to safetensors or back.
absl::Status Convert(const Words& words, const Options& options, std::ostream& out);

}  // namespace official::checkpoint_tool
