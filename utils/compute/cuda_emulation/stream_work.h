// Gives a stream of an emulated device something to do.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace official::compute::cuda_emulation {

// Does the work; returns what was wrong with it.
using StreamWork = std::function<std::optional<std::string>()>;

enum class WorkKind { kKernel, kLibraryCall, kCopy, kMemset, kCheck };
inline constexpr int kNumWorkKinds = 5;

// Does the work as soon as the stream has done what it was given before, at once as a rule, or adds it to what the
// stream records.
cudaError_t GiveWork(cudaStream_t stream, WorkKind kind, StreamWork work);

// The work that streams were given in this process, that of a recording when it was made; without sums of several
// devices.
struct WorkCounts {
  int64_t kernels = 0, library_calls = 0, copies = 0, memsets = 0;
};
WorkCounts WorkGiven();

// With false, streams only count what they are given, and nothing is known of the bytes of buffers. To be called before
// the first device is made.
void SetDoesWork(bool does_work);
bool DoesWork();

// The same of work that may have to wait for what others do: it returns nothing, and is asked again, until it could be
// done; then what was wrong with it, "" if nothing was. It must not call the runtime.
using WaitingWork = std::function<std::optional<std::string>()>;
cudaError_t GiveWaitingWork(cudaStream_t stream, WaitingWork work);
// Does what the streams of all devices can do by now; every call that asks a stream or an event does so, too.
void DoWaitingWork();

// The number of devices: that of the environment's OFFICIAL_EMULATED_GPUS, 2 if it is not set.
int NumDevices();
int DeviceOfStream(cudaStream_t stream);
// True once cudaDeviceEnablePeerAccess has allowed the device's kernels to access the memory of the other.
bool CanAccess(int device, int other);

// Forgets the error that has made all calls for the current device fail since, and returns its text; "" if there was
// none.
std::string TakeError();

}  // namespace official::compute::cuda_emulation
