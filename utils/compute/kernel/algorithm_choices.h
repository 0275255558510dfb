// Which of several algorithms computes a node. They are timed once, on the device and with the shapes at hand, and the
// choice is kept: the last bits of the results depend on it, so a run that goes on must make the same ones.
#pragma once

#include <map>
#include <mutex>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace official::compute {

// Safe for use by several threads.
class AlgorithmChoices {
 public:
  // The choice known for `key`; else what `choose` gives, which is kept. Timings are made one at a time: the devices of
  // a run share cores, memory and links. A key says for what it was chosen, and neither has tabs or line ends.
  absl::StatusOr<std::string> FindOrChoose(const std::string& key,
                                           absl::FunctionRef<absl::StatusOr<std::string>()> choose);
  // Forgets the choice for `key`: what is known does not exist here (a file of another version).
  void Forget(const std::string& key);

  // Adds the choices of a text that ToText has given. InvalidArgument, with the number of the first line that is none;
  // nothing is added then.
  absl::Status Parse(absl::string_view text);
  // One line for each choice: key, tab, choice.
  std::string ToText() const;
  // What was chosen, not found, since the last call.
  struct NewChoices {
    int count = 0;
    double seconds = 0;  // that choosing took
  };
  NewChoices TakeNew();

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::string> choices_;
  NewChoices new_;
};

}  // namespace official::compute
