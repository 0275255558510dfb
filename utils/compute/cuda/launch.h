// Helpers for launching kernels.
#pragma once

#include <cstdint>
#include <limits>

namespace official::compute {

// The number of blocks for `count` items, `of_block` in each.
inline unsigned NumBlocks(int64_t count, int64_t of_block) {
  return static_cast<unsigned>((count + of_block - 1) / of_block);
}

// Calls f with a value of the type in which a kernel counts its threads, one for each of `count` items: 32 bits where
// they suffice, since their divisions are fast.
template <typename F>
auto WithIndexType(int64_t count, F f) {
  constexpr int64_t kMaxBlock = 1024;
  return count <= std::numeric_limits<uint32_t>::max() - kMaxBlock ? f(uint32_t()) : f(uint64_t());
}

#ifdef __CUDACC__
// The number of this thread in the grid.
template <typename Index>
__device__ Index ThreadIndex() {
  return static_cast<Index>(blockIdx.x) * blockDim.x + threadIdx.x;
}
#endif

}  // namespace official::compute
