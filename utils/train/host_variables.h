// HostVariables: the variables of replicas as bytes in the memory of the host, for a worker that exchanges them with
// parameter servers. Where the devices compute there, they are the variables themselves; of other devices they are
// copies, which are made of what is to be sent and brought back when all that has come is written.
#pragma once

#include <map>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "utils/compute/core/tensor.h"
#include "utils/train/replicas.h"

namespace official::train {

class HostVariables {
 public:
  // `replicas` must outlive this.
  explicit HostVariables(Replicas& replicas) : replicas_(replicas) {}

  // Returns the values of a variable of the first local replica, as of now. They stay until the next call that names
  // it. Errors of Replicas::Read.
  absl::StatusOr<const char*> Read(absl::string_view name);
  // Returns a variable to write some of its elements; the others keep what they are. Errors of Replicas::Read.
  absl::StatusOr<char*> Write(absl::string_view name);
  // Brings what was written since the last call to all local replicas. Errors of Replicas::Write.
  absl::Status Flush();

 private:
  Replicas& replicas_;
  std::map<std::string, compute::Tensor, std::less<>> copies_;  // of other devices
  std::set<std::string, std::less<>> written_;                  // of the copies
};

}  // namespace official::train
