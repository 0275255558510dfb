// Runs the threads of a kernel, one at a time: each is a fiber that runs until it ends or waits for others. Blocks and
// threads take turns as the schedule says.
//
// A kernel must not do what CUDA does not allow or leaves open, whatever the schedule: read what nobody wrote, access
// memory outside of all buffers or at an address that is no multiple of the type's alignment, wait at a barrier that
// not all threads of the block reach, name lanes that do not take part, or access in two threads, one of them writing,
// what no barrier orders. The first of these ends the kernel.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "utils/compute/cuda_emulation/memory.h"

namespace official::compute::cuda_emulation {

enum class Schedule {
  kAscending,
  kDescending,
  kRandom,
  kGreedyWarps,  // a warp runs as far as it gets before another does
};
// The schedule of the environment's OFFICIAL_EMULATION_SCHEDULE (ascending, descending, random, warps); ascending if it
// is not set.
Schedule CurrentSchedule();
void SetSchedule(Schedule schedule);

// The card that devices are, by default one of compute capability 9.0.
struct Card {
  int major = 9;                          // of the compute capability
  size_t block_shared_bytes = 227 << 10;  // the most shared memory of a block
  size_t max_peers = 8;                   // devices whose memory its kernels may access at the same time
};
// That of all devices; for tests, before they make devices.
Card& TheCard();

// Runs all threads of a launch; returns what the kernel did wrong.
std::optional<std::string> RunGrid(const cudaLaunchConfig_t& config, const KernelCall& call);

// The number of threads that have run in this process, for tests that want to know that something ran.
int64_t NumThreadsRun();

// For the functions that the compiler puts before each access of a kernel (access_hooks.cc). `caller` is the place in
// the code.
void CheckAccess(const void* address, size_t bytes, bool write, const void* caller);
// A volatile read does not race with atomic operations.
void CheckVolatileRead(const void* address, size_t bytes, const void* caller);
void ReportMisaligned(const void* address, size_t alignment, const std::string& where);
// Ends the running kernel with this error; does nothing on the host.
void FailKernel(const std::string& what, const std::string& where);
bool InKernel();

}  // namespace official::compute::cuda_emulation
