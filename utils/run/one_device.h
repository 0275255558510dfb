// The device of a program that computes on one.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "utils/compute/kernel/device.h"
#include "utils/flags/performance.h"

namespace official::run {

// Makes the first device of the PJRT plugin with --distribution_strategy=tpu; else a GPU with num_gpus 1 or, unset,
// where there is one, and the CPU with 0. Its warnings go to the log. Errors: those of misc::GetNumGpus, UsePjrtPlugin
// and compute::MakeDevice. What a plugin does not do in time ends `program`.
absl::StatusOr<std::unique_ptr<compute::Device>> MakeOneDevice(const flags::PerformanceConfig& config,
                                                               std::optional<int> num_gpus, const std::string& program);

}  // namespace official::run
