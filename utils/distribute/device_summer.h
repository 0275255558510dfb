// Sums of an InProcessGroup whose devices have their own memory: the devices copy and add, on the host's orders.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "utils/compute/kernel/device.h"
#include "utils/compute/kernel/peer_streams.h"
#include "utils/distribute/in_process_group.h"

namespace official::distribute {

// Makes a summer with scratch memory on the devices, which must outlive it, for `chunk_elements` of each at a time.
absl::StatusOr<std::unique_ptr<PackSummer>> MakeDeviceSummer(absl::Span<compute::Device* const> devices,
                                                             std::unique_ptr<compute::PeerStreams> streams,
                                                             SumOrder order, int64_t chunk_elements = int64_t{1} << 22);

}  // namespace official::distribute
