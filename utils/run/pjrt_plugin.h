// The PJRT plugin that a run computes with.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "utils/flags/performance.h"

namespace official::run {

// The files that libtpu.so may be: that of TPU_LIBRARY_PATH alone if it is set, else where Cloud TPU's images have it
// and where pip puts it (VIRTUAL_ENV, HOME and the folders of the machine), those that are there.
std::vector<std::string> InstalledTpuLibraries();

// Loads the plugin of --pjrt_plugin, by default libtpu.so, and makes its devices available (LoadPjrtBackend), those of
// the CPU as many as --num_cpu_devices says. Returns their number. The errors begin with --distribution_strategy=tpu:
// InvalidArgument, with what to give, if there is no such plugin or the program cannot use it; else the plugin's own,
// such as Unavailable for a TPU that is in use. What the plugin does not do in time ends `program` (EndProcess).
absl::StatusOr<int> UsePjrtPlugin(const flags::PerformanceConfig& config, const std::string& program);

}  // namespace official::run
