// The choices among several algorithms for a node. They are timed once, on the device and with the shapes at hand, and
// the choice is kept: the last bits of the results depend on it, so a run that is continued must make the same ones.
#pragma once

#include <map>
#include <mutex>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace official::compute {

// This is safe for use by several threads.
class AlgorithmChoices {
 public:
  // Returns the choice known for `key`, or else calls `choose` and keeps its result. Timings are made one at a time:
  // the devices of a run share cores, memory and links. The key describes what is chosen for; key and choice have no
  // tabs or line ends.
  absl::StatusOr<std::string> FindOrChoose(const std::string& key,
                                           absl::FunctionRef<absl::StatusOr<std::string>()> choose);
  // Forgets the choice for `key`, if the chosen algorithm does not exist here (a file of another version).
  void Forget(const std::string& key);

  // Adds the choices of a text that ToText returned. If a line is not a choice, returns InvalidArgument with the number
  // of the first such line and adds nothing.
  absl::Status Parse(absl::string_view text);
  // Returns one line for each choice: key, tab, choice.
  std::string ToText() const;
  // The choices that were made, not found, since the last call.
  struct NewChoices {
    int count = 0;
    double seconds = 0;  // time that choosing took
  };
  NewChoices TakeNew();

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::string> choices_;
  NewChoices new_;
};

}  // namespace official::compute
