// Errors that depend on the data (a label outside the classes) and are found in device code. A kernel reports; the host
// reads the report when it next waits for the device, so a step costs no extra wait. Of several reports the smallest is
// kept: which one it is does not depend on the order in which threads run.
#pragma once

#include <cstdint>

namespace official::compute {

// The value of the word before any error.
inline constexpr unsigned long long kNoDataError = ~0ull;

// The error that one kernel may report. CudaDevice::AddDataError makes it; it is passed to the kernel by value.
struct DataError {
  unsigned long long* word = nullptr;  // the device's word, in device memory
  uint32_t id = 0;

  // Reports an error; the message will show `value`.
  __device__ void Report(int32_t value) const {
    atomicMin(word, static_cast<unsigned long long>(id) << 32 | static_cast<uint32_t>(value));
  }
};

// True once an earlier kernel of the stream has reported: kernels that write variables then leave them alone.
__device__ inline bool HasDataError(const unsigned long long* word) { return *word != kNoDataError; }
// The same in a kernel that may itself report, beside threads that ask: whether it has counts if it is seen.
__device__ inline bool SeesDataError(const unsigned long long* word) {
  return *static_cast<const volatile unsigned long long*>(word) != kNoDataError;
}

}  // namespace official::compute
