// Sums of an InProcessGroup by CrossDeviceOps that the program has written.
#pragma once

#include <memory>

#include "utils/distribute/cross_device_ops.h"
#include "utils/distribute/in_process_group.h"

namespace official::distribute {

// Returns a summer for devices that compute in the host's memory. It gives the buffers of a pack to one BatchReduce.
std::unique_ptr<PackSummer> MakeCrossDeviceOpsSummer(std::shared_ptr<CrossDeviceOps> ops);

}  // namespace official::distribute
