// The flags by which a program that computes on one device takes that of a PJRT plugin.
#pragma once

#include "utils/flags/flag_group.h"

namespace official::flags {

// --distribution_strategy, --pjrt_plugin and --all_reduce_timeout_secs, with what they mean there.
FlagSpec OneDeviceStrategyFlag();
FlagSpec OneDevicePluginFlag();
FlagSpec OneDeviceTimeoutFlag();

}  // namespace official::flags
