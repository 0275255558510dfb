// What the kernels of attention on tensor cores share, which compute in BFloat16 or Half with sums in float. A block
// treats tiles of up to 64 queries and keys of one head of one sequence; each of its four warps has 16 rows of a tile,
// and what is computed ends at the 16 rows in which the sequence ends. Only for CUDA code.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "utils/compute/cuda/cuda_device.h"
#include "utils/compute/cuda/launch.h"
#include "utils/compute/cuda/mma.h"
#include "utils/compute/cuda/pack.h"
#include "utils/compute/kernel/kernel.h"
#include "utils/compute/ops/attention/attention_cuda.h"
#include "utils/compute/ops/attention/geometry.h"

namespace official::compute::attention_cuda {

inline constexpr int kWarps = kTile / mma::kSize;
inline constexpr int kMmaThreads = 32 * kWarps;
inline constexpr float kLog2E = 1.44269504f;

// The stride of the rows of a tile in shared memory, of heads of up to 16 * kChunks columns.
template <int kChunks>
inline constexpr int kMmaStride = mma::kSize* kChunks + mma::kRowPadding;
template <int kChunks>
inline constexpr int kMmaTile = kTile* kMmaStride<kChunks>;

// True if the device and the sizes of heads allow these kernels, for BFloat16 and Half.
inline bool TakesMma(const KernelSpec& spec, const AttentionGeometry& g) {
  return mma::HasMma(CudaDeviceOf(spec).properties()) && g.key_size % mma::kSize == 0 && g.value_size % mma::kSize == 0;
}

// The kernel of Attention if TakesMma(): T is BFloat16 or Half.
template <typename T>
absl::StatusOr<Kernel> MakeMmaAttention(const KernelSpec& spec);
// And that of AttentionGrad.
template <typename T>
absl::StatusOr<Kernel> MakeMmaAttentionGrad(const KernelSpec& spec);

// The numbers that a thread moves at once.
template <typename T>
inline constexpr int kMove = kWidestLoad<T>;

// The shared memory of the block.
template <typename T>
__device__ T* SharedTiles() {
  return reinterpret_cast<T*>(DynamicShared<Pack<T, kMove<T>>>());
}

// Over the four lanes that share a row.
template <typename Op>
__device__ float ReduceLanes(float value, Op op) {
  value = op(value, __shfl_xor_sync(0xffffffff, value, 1));
  return op(value, __shfl_xor_sync(0xffffffff, value, 2));
}

// Sets the first rows of the tile to rows [row, row + rows) of x, and zeros up to a multiple of 16 rows.
template <int kChunks, typename T>
__device__ void LoadRows(const HeadColumns<const T>& x, int row, int rows, T* tile) {
  constexpr int kMoves = mma::kSize * kChunks / kMove<T>;  // of a row
  const int tile_rows = (rows + mma::kSize - 1) / mma::kSize * mma::kSize;
#pragma unroll 4
  for (int i = threadIdx.x; i < tile_rows * kMoves; i += kMmaThreads) {
    const int r = i / kMoves, c = i % kMoves * kMove<T>;
    if (c >= x.columns) continue;
    Pack<T, kMove<T>> pack = {};
    if (r < rows) pack = LoadPack<kMove<T>>(x.data + (row + r) * x.stride + c);
    StorePack(tile + r * kMmaStride<kChunks> + c, pack);
  }
}

// The place of keys and of the warp's queries in their sequence.
struct Place {
  int query;   // the warp's first
  int key;     // the first of up to kTile, a multiple of 16
  int groups;  // of 16 of these keys, that any of the queries sees
  int seen;    // the keys of the sequence that any of the queries sees
};

// Adds to products those of a warp's 16 rows of a and `groups` of 16 rows of b, each of so many columns.
template <int kChunks, typename T, int kGroups>
__device__ void MultiplyRows(const T* a, const T* b, int columns, int groups, mma::Sums (&products)[kGroups]) {
  constexpr int kRows = kMmaStride<kChunks>;
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    if (c * mma::kSize >= columns) break;
    const auto left = mma::LoadLeft(a + c * mma::kSize, kRows);
#pragma unroll
    for (int j = 0; j < kGroups; ++j) {
      if (j >= groups) break;
      mma::MultiplyAdd(left, mma::LoadRightTransposed(b + j * mma::kSize * kRows + c * mma::kSize, kRows),
                       &products[j]);
    }
  }
}

// Stores up to 16 rows from `row` on of y, for a warp: `sums` times the factors of the lane's rows, by way of the
// warp's own `tile` in shared memory.
template <int kChunks, typename T>
__device__ void StoreRows(mma::Sums (&sums)[kChunks], const float (&factors)[2], T* tile, int row, int rows,
                          const HeadColumns<T>& y) {
  constexpr int kMoves = mma::kSize * kChunks / kMove<T>;
  __syncwarp();  // the tile has been read
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    if (c * mma::kSize >= y.columns) break;
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[c].at[n][i] *= factors[i / 2];
    }
    mma::StoreRounded(sums[c], tile + c * mma::kSize, kMmaStride<kChunks>);
  }
  __syncwarp();
  for (int i = threadIdx.x % 32; i < min(rows, mma::kSize) * kMoves; i += 32) {
    const int r = i / kMoves, c = i % kMoves * kMove<T>;
    if (c < y.columns) {
      StorePack(y.data + (row + r) * y.stride + c, LoadPack<kMove<T>>(tile + r * kMmaStride<kChunks> + c));
    }
  }
}

}  // namespace official::compute::attention_cuda
