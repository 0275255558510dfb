// Errors that only the data can tell (a label outside the classes), found in device code. A kernel reports; the host
// reads the report when it next waits for the device, so a step costs no extra wait. Of several reports the smallest
// is kept: which one it is does not depend on the order in which threads run.
#pragma once

#include <cstdint>

namespace official::compute {

// No error yet.
inline constexpr unsigned long long kNoDataError = ~0ull;

// What one kernel may report; made by CudaDevice::AddDataError. Handed to the kernel by value.
struct DataError {
  unsigned long long* word = nullptr;  // the device's, in device memory
  uint32_t id = 0;

#ifdef __CUDACC__
  // `value`: what the message will show.
  __device__ void Report(int32_t value) const {
    atomicMin(word, static_cast<unsigned long long>(id) << 32 | static_cast<uint32_t>(value));
  }
#endif
};

#ifdef __CUDACC__
// True once an earlier kernel of the stream has reported: kernels that write variables then leave them alone.
__device__ inline bool HasDataError(const unsigned long long* word) { return *word != kNoDataError; }
#endif

}  // namespace official::compute
