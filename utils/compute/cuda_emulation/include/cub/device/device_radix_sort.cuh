// Stands in for the toolkit's header of this name, as cuda_runtime.h does: the sort that the project uses.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace cub {

struct DeviceRadixSort {
  static cudaError_t SortPairs(void* scratch, size_t& scratch_bytes, const int32_t* keys, int32_t* sorted_keys,
                               const int32_t* values, int32_t* sorted_values, int count, int first_bit, int end_bit,
                               cudaStream_t stream);
};

}  // namespace cub
