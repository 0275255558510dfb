// PeerStreams for GPUs.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "utils/compute/kernel/device.h"
#include "utils/compute/kernel/peer_streams.h"

namespace official::compute {

// See DeviceKind in device.h. The copies take the direct way where the links of the GPUs allow it.
absl::StatusOr<std::unique_ptr<PeerStreams>> MakeCudaPeerStreams(absl::Span<Device* const> devices);

}  // namespace official::compute
