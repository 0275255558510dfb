// The CUDA backend as the rest of the program sees it: a shared object, libofficial_cuda.so, that is loaded when GPUs
// are wanted. A program that never calls these functions loads nothing of CUDA; no program links it.
#pragma once

#include <chrono>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "utils/compute/kernel/communicator.h"
#include "utils/compute/kernel/device.h"
#include "utils/compute/kernel/peer_streams.h"

namespace official::compute {

// Makes devices of kind "cuda" available to MakeDevice and their kernels to programs; the first call does the work. If
// no NVIDIA driver is loaded, it stops there. Returns FailedPrecondition, with the reason, for no driver, a driver that
// is too old (both versions) or no GPU; NotFound for no libofficial_cuda.so, or no cuDNN, cuBLAS or NCCL for it.
absl::Status LoadCudaBackend();

// Adds the kernels only, which needs no driver: for the table of ops. Returns NotFound as above.
absl::Status LoadCudaKernels();

// Makes a group of devices of kind "cuda" in this process that sum through NCCL, on streams of their own, in the order
// that NCCL chooses. `devices` must outlive it; the rank of each is its index there. The error is DeadlineExceeded if
// they do not connect within the deadline, or when one of them has waited that long in a step. After an Abort the group
// cannot be used again.
absl::StatusOr<std::unique_ptr<CommunicatorGroup>> MakeNcclGroup(absl::Span<Device* const> devices,
                                                                 std::chrono::seconds deadline);

// Makes the streams on which such devices copy to each other, directly where their links allow it. `devices` must
// outlive them.
absl::StatusOr<std::unique_ptr<PeerStreams>> MakePeerStreams(absl::Span<Device* const> devices);

}  // namespace official::compute
