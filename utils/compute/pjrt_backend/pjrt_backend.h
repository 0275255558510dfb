// Access to the devices of PJRT plugins. Their code and the emitters of all ops are in the shared object
// libofficial_pjrt.so (backend_entry.h): a program that uses no such devices loads nothing of it; no program links it.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "utils/compute/pjrt/call_watch.h"

namespace official::compute {

struct PjrtPluginOptions {
  std::string path;         // of the plugin
  int num_cpu_devices = 1;  // of a plugin for CPUs
  PjrtWaits waits = {};
};

// Makes the devices of a plugin available to MakeDevice, as kind kPjrtKind, and returns their number. One process has
// the devices of one plugin: a later call returns what the first one did. The errors name the plugin: those of
// PjrtPlugin::Load and PjrtClient::Create, InvalidArgument if it does not make the wanted number of devices; NotFound
// without libofficial_pjrt.so, FailedPrecondition if that is of another build.
absl::StatusOr<int> LoadPjrtBackend(const PjrtPluginOptions& options);

}  // namespace official::compute
