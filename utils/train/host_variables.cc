#include "utils/train/host_variables.h"

#include <utility>

#include "utils/compute/core/status.h"

namespace official::train {

absl::StatusOr<const char*> HostVariables::Read(absl::string_view name) {
  if (replicas_.strategy().device(0).uses_host_memory()) return static_cast<const char*>(replicas_.HostData(name));
  ASSIGN_OR_RETURN(compute::Tensor value, replicas_.Read(name));
  compute::Tensor& copy = copies_[std::string(name)];
  copy = std::move(value);
  return static_cast<const char*>(copy.raw_data());
}

absl::StatusOr<char*> HostVariables::Write(absl::string_view name) {
  if (replicas_.strategy().device(0).uses_host_memory()) return static_cast<char*>(replicas_.HostData(name));
  if (written_.count(name) == 0) {
    RETURN_IF_ERROR(Read(name).status());
    written_.emplace(name);
  }
  return static_cast<char*>(copies_.find(name)->second.raw_data());
}

absl::Status HostVariables::Flush() {
  for (const std::string& name : written_) RETURN_IF_ERROR(replicas_.Write(name, copies_.find(name)->second));
  written_.clear();
  return absl::OkStatus();
}

}  // namespace official::train
