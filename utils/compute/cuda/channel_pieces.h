// Helpers of kernels that sum over all but the innermost dimension of an array. The rows are cut into pieces whose size
// depends on the shape alone; one block sums each piece, and the sums are added up in a fixed order, so that the bits
// do not depend on timing. Only for CUDA code.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <type_traits>

#include "utils/compute/core/dtype.h"
#include "utils/compute/core/tensor.h"
#include "utils/compute/cuda/launch.h"
#include "utils/compute/cuda/pack.h"

namespace official::compute {

// An array as [rows, channels], its rows in pieces. The threads of a block lie over a tile of channels, `width` of them
// for each thread, and go over the rows of a piece: a thread keeps its channels.
struct ChannelPieces {
  static constexpr int kThreads = 256;  // per block
  static constexpr int64_t kMaxPieces = 256;
  static constexpr int kRowsAtOnce = 4;  // of a thread: their loads are under way together

  int64_t rows, channels, piece_rows, pieces;
  int width;
  int tile_bits;  // the threads of a tile's row: 2^tile_bits

  explicit ChannelPieces(const TensorType& type, int width = 1)
      : rows(type.shape.Product(0, type.shape.rank() - 1)), channels(type.shape.dim(-1)), width(width) {
    const int64_t widest_tile = width == 1 ? 32 : 8;  // so that the elements of a tile's row fill cache lines
    tile_bits = std::countr_zero(std::bit_ceil(static_cast<uint64_t>(std::min(channels / width, widest_tile))));
    const int64_t turn = kRowsAtOnce * tile_rows();
    piece_rows = std::max<int64_t>((rows + turn * kMaxPieces - 1) / (turn * kMaxPieces), 1) * turn;
    pieces = (rows + piece_rows - 1) / piece_rows;
  }
  // The pieces of an array of one of the StorageTypes() whose channels are loaded 16 bytes at a time if their number
  // allows it, and else one by one.
  static ChannelPieces Packed(const TensorType& type) {
    const int widest = static_cast<int>(16 / SizeOf(type.dtype));
    return ChannelPieces(type, type.shape.dim(-1) % widest == 0 ? widest : 1);
  }

  bool empty() const { return rows == 0 || channels == 0; }
  __host__ __device__ int64_t FirstRow(int64_t piece) const { return piece * piece_rows; }
  __host__ __device__ int64_t LastRow(int64_t piece) const { return std::min(FirstRow(piece) + piece_rows, rows); }
  // The rows that a block's threads treat at the same time.
  __host__ __device__ int tile_rows() const { return kThreads >> tile_bits; }

  // The number of blocks for a thread per channel, and for a block per tile and piece.
  unsigned ChannelBlocks() const { return NumBlocks(channels, kThreads); }
  dim3 PieceBlocks() const {
    return dim3(NumBlocks(channels, int64_t{width} << tile_bits), static_cast<unsigned>(pieces));
  }

  // The functions below are for the threads of PieceBlocks(); kWidth is `width`.

  // The first channel of this thread. It may be past the last one.
  template <int kWidth = 1>
  __device__ int64_t Channel() const {
    return (static_cast<int64_t>(blockIdx.x) << tile_bits | (threadIdx.x & ((1 << tile_bits) - 1))) * kWidth;
  }
  // True if this thread has channels, and rows in block y's piece.
  template <int kWidth = 1>
  __device__ bool HasRows() const {
    return Channel<kWidth>() < channels && FirstRow(blockIdx.y) + (threadIdx.x >> tile_bits) < rows;
  }

  // Calls use(i, load(i)) for the rows of this thread in order, where i is the place of Channel() in the row. `use` of
  // a row may follow `load` of later ones.
  template <int kWidth, int kAtOnce = kRowsAtOnce, typename Load, typename Use>
  __device__ void ForRows(Load load, Use use) const {
    const int64_t channel = Channel<kWidth>(), first_row = FirstRow(blockIdx.y);
    if (channel >= channels) return;
    const int last = static_cast<int>(LastRow(blockIdx.y) - first_row), step = tile_rows();
    const int64_t stride = step * channels;
    int row = threadIdx.x >> tile_bits;
    int64_t i = (first_row + row) * channels + channel;
    for (; row + (kAtOnce - 1) * step < last; row += kAtOnce * step, i += kAtOnce * stride) {
      std::decay_t<decltype(load(i))> loaded[kAtOnce];
#pragma unroll
      for (int r = 0; r < kAtOnce; ++r) loaded[r] = load(i + r * stride);
#pragma unroll
      for (int r = 0; r < kAtOnce; ++r) use(i + r * stride, loaded[r]);
    }
#pragma unroll 1
    for (; row < last; row += step, i += stride) use(i, load(i));
  }

  // The channel whose sum Sum returns to this thread, if HasSum() is true.
  template <int kWidth = 1>
  __device__ int64_t SumChannel() const {
    const int lane = threadIdx.x & ((1 << tile_bits) - 1);
    return (static_cast<int64_t>(blockIdx.x) << tile_bits | lane) * kWidth + (threadIdx.x >> tile_bits);
  }
  template <int kWidth = 1>
  __device__ bool HasSum() const {
    return threadIdx.x < kWidth << tile_bits && SumChannel<kWidth>() < channels;
  }
  // The sum of a channel over the rows of block y's piece, for the threads for which HasSum() is true: add(sums,
  // load(i)) adds what is at the places from i on to the sums of the thread's channels. All threads of the block must
  // call it, once. T{} is zero.
  template <typename T, int kWidth, typename Load, typename Add>
  __device__ T Sum(Load load, Add add) const {
    constexpr int kPad = 8;  // so that the sums of a thread's channels lie in different banks
    __shared__ Shared<T[kWidth][kThreads + kPad]> of_threads;
    T sums[kWidth] = {};
    ForRows<kWidth>(load, [&](int64_t, const auto& loaded) { add(sums, loaded); });
#pragma unroll
    for (int k = 0; k < kWidth; ++k) of_threads[k][threadIdx.x] = sums[k];
    __syncthreads();
    T sum{};
    if (threadIdx.x < kWidth << tile_bits) {
      const int lane = threadIdx.x & ((1 << tile_bits) - 1), k = threadIdx.x >> tile_bits;
      for (int i = lane; i < kThreads; i += 1 << tile_bits) sum += of_threads[k][i];
    }
    return sum;
  }
  // The same of f(i) for a width of 1.
  template <typename T, typename F>
  __device__ T Sum(F f) const {
    return Sum<T, 1>(f, [](T(&sums)[1], const T& value) { sums[0] += value; });
  }
};

// Calls f with the width of ChannelPieces::Packed for elements of T, as a constant.
template <typename T, typename F>
auto WithWidth(const ChannelPieces& v, F f) {
  return v.width == 1 ? f(std::integral_constant<int, 1>()) : f(std::integral_constant<int, kWidestLoad<T>>());
}

}  // namespace official::compute
