// Faults of the emulated NCCL, for tests.
#pragma once

#include <nccl.h>

namespace official::compute::cuda_emulation {

// Makes ncclCommGetAsyncError say from now on that the communicators of this rank have failed. Their sums that are
// under way wait on, as NCCL's kernels do until an abort.
void FailCommunicators(int rank, ncclResult_t error);

// Makes all calls of ncclCommAbort wait, as where the GPU does not answer any more, until this is called with false.
void HoldAborts(bool hold);

}  // namespace official::compute::cuda_emulation
