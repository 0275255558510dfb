// The directory of one version of an exported model.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace official::exporting {

// Returns Cancelled if a signal has asked to stop (misc::StopSignals).
absl::Status CheckNotStopped();

// Makes `<export_dir>/<seconds since 1970>/`, which `write` fills, and returns its path. It appears complete or not at
// all; if the name is taken (two exports in one second), the next free number is used. Errors are those of `write`,
// which gets the directory under the name that it has until then, of CheckNotStopped and of the file system
// (utils/files).
absl::StatusOr<std::string> WriteVersion(const std::string& export_dir,
                                         const std::function<absl::Status(const std::string& directory)>& write);

}  // namespace official::exporting
