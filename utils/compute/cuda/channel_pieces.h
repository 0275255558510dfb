// Helpers of kernels that sum over all but the innermost dimension of an array. The rows are cut into pieces whose size
// depends on the shape alone; one block sums each piece, and the sums are added up in a fixed order, so that the bits
// do not depend on timing. Only for CUDA code.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "utils/compute/core/tensor.h"
#include "utils/compute/cuda/launch.h"

namespace official::compute {

// An array as [rows, channels], its rows in pieces.
struct ChannelPieces {
  static constexpr int kThreads = 256;  // per block
  static constexpr int kTileChannels = 32, kTileRows = kThreads / kTileChannels;
  static constexpr int64_t kMaxPieces = 256, kMinPieceRows = 4 * kTileRows;

  int64_t rows, channels, piece_rows, pieces;

  explicit ChannelPieces(const TensorType& type)
      : rows(type.shape.Product(0, type.shape.rank() - 1)),
        channels(type.shape.dim(-1)),
        piece_rows(std::max((rows + kMaxPieces - 1) / kMaxPieces, kMinPieceRows)),
        pieces((rows + piece_rows - 1) / piece_rows) {}

  bool empty() const { return rows == 0 || channels == 0; }
  __host__ __device__ int64_t FirstRow(int64_t piece) const { return piece * piece_rows; }
  __host__ __device__ int64_t LastRow(int64_t piece) const { return std::min(FirstRow(piece) + piece_rows, rows); }

  // The number of blocks for a thread per channel, for a thread per element, and for Sum.
  unsigned ChannelBlocks() const { return NumBlocks(channels, kThreads); }
  unsigned ElementBlocks() const { return NumBlocks(rows * channels, kThreads); }
  dim3 PieceBlocks() const { return dim3(NumBlocks(channels, kTileChannels), static_cast<unsigned>(pieces)); }

  // The channel of this thread, in block x's tile. It may be past the last one.
  __device__ static int64_t Channel() {
    return static_cast<int64_t>(blockIdx.x) * kTileChannels + threadIdx.x % kTileChannels;
  }
  // True if Sum returns the sum of a channel to this thread.
  __device__ bool HasSum() const { return threadIdx.x < kTileChannels && Channel() < channels; }
  // The sum of f(i) over the elements i of Channel() in the rows of block y's piece, for the threads for which HasSum()
  // is true. All threads of the block must call it, once. T{} is zero.
  template <typename T, typename F>
  __device__ T Sum(F f) const {
    __shared__ Shared<T[kTileRows][kTileChannels]> of_rows;
    const int lane = threadIdx.x % kTileChannels, first = threadIdx.x / kTileChannels;
    const int64_t channel = Channel(), last_row = LastRow(blockIdx.y);
    T sum{};
    for (int64_t row = FirstRow(blockIdx.y) + first; channel < channels && row < last_row; row += kTileRows) {
      sum += f(row * channels + channel);
    }
    of_rows[first][lane] = sum;
    __syncthreads();
    for (int i = 1; first == 0 && i < kTileRows; ++i) sum += of_rows[i][lane];
    return sum;
  }
};

}  // namespace official::compute
