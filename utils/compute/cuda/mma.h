// Products of matrices on tensor cores: a warp multiplies tiles of 16x16 numbers of 16 bits, BFloat16 or Half, and sums
// in float. Only for CUDA code, and for GPUs for which HasMma() is true. All threads of the warp must call these
// functions together.
//
// The lanes of the warp share the numbers of a tile, as PTX's mma.m16n8k16 wants them ("Matrix fragments for
// mma.m16n8k16 with floating point type" in NVIDIA's PTX ISA). Of a tile of 16 rows, lane 4 r + c has the pairs of
// columns 2 c and 2 c + 1 of row r in each quarter of 8x8 numbers:
//
//   columns    0-7        8-15
//   rows 0-7   pairs[0]   pairs[2]
//   rows 8-15  pairs[1]   pairs[3]
//
// That holds for the left operand and, with the numbers at[0][0..1], at[0][2..3], at[1][0..1] and at[1][2..3] in the
// places of pairs 0 to 3, for sums. So sums that are rounded in pairs (Rounded) are a left operand. Of the right
// operand the lane has pairs of rows: rows 2 c and 2 c + 1 of column r.
//
//   columns    0-7        8-15
//   rows 0-7   pairs[0]   pairs[2]
//   rows 8-15  pairs[1]   pairs[3]
#pragma once

#include <cuda_runtime.h>

#include <bit>
#include <cstdint>
#include <type_traits>

#include "utils/compute/core/dtype.h"
#include "utils/compute/cuda/pack.h"

namespace official::compute::mma {

// The rows and columns of a tile.
inline constexpr int kSize = 16;
// A tile in shared memory has rows of a multiple of 16 numbers and these more: then eight rows of a quarter lie in
// different banks. Its begin is a multiple of 16 bytes.
inline constexpr int kRowPadding = 8;

inline bool HasMma(const cudaDeviceProp& properties) { return properties.major >= 8; }

template <typename T>
struct Left {
  uint32_t pairs[4];
};
template <typename T>
struct Right {
  uint32_t pairs[4];
};
struct Sums {
  float at[2][4] = {};  // of columns 0-7 and 8-15
};

// The lane's place in a quarter: its row, and the first of its two columns.
__device__ inline int LaneRow() { return threadIdx.x % 32 / 4; }
__device__ inline int LaneColumn() { return threadIdx.x % 4 * 2; }
// The row and the column, in the tile, of sums.at[n][i].
__device__ inline int SumRow(int i) { return LaneRow() + i / 2 * 8; }
__device__ inline int SumColumn(int n, int i) { return n * 8 + LaneColumn() + i % 2; }

// Loads the four quarters of the tile whose row r lies at tile + r * stride. Quarter i is loaded as kDownFirst says:
// 0 and 1 are those below one another, else those beside one another. With kTransposed, the lanes' pairs are of rows.
template <bool kTransposed, bool kDownFirst, typename T>
__device__ void LoadQuarters(const T* tile, int stride, uint32_t (&pairs)[4]) {
#ifdef __CUDACC__
#if __CUDA_ARCH__ >= 800
  // Eight lanes give the addresses of a quarter's rows.
  const int quarter = threadIdx.x % 32 / 8;
  const int row = threadIdx.x % 8 + (kDownFirst ? quarter % 2 : quarter / 2) * 8;
  const int column = (kDownFirst ? quarter / 2 : quarter % 2) * 8;
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(tile + row * stride + column));
  if constexpr (kTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(pairs[0]), "=r"(pairs[1]), "=r"(pairs[2]), "=r"(pairs[3])
                 : "r"(address)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(pairs[0]), "=r"(pairs[1]), "=r"(pairs[2]), "=r"(pairs[3])
                 : "r"(address)
                 : "memory");
  }
#endif
#else
  for (int i = 0; i < 4; ++i) {
    const T* const quarter = tile + ((kDownFirst ? i % 2 : i / 2) * stride + (kDownFirst ? i / 2 : i % 2)) * 8;
    const int row = kTransposed ? LaneColumn() : LaneRow(), column = kTransposed ? LaneRow() : LaneColumn();
    const T* const first = quarter + row * stride + column;
    const T* const second = first + (kTransposed ? stride : 1);
    pairs[i] = first->bits | static_cast<uint32_t>(second->bits) << 16;
  }
#endif
}

// The left operand whose row r and column c lie at tile[r * stride + c].
template <typename T>
__device__ Left<T> LoadLeft(const T* tile, int stride) {
  Left<T> a;
  LoadQuarters<false, true>(tile, stride, a.pairs);
  return a;
}
// At tile[c * stride + r].
template <typename T>
__device__ Left<T> LoadLeftTransposed(const T* tile, int stride) {
  Left<T> a;
  LoadQuarters<true, false>(tile, stride, a.pairs);
  return a;
}
// The right operand whose row r and column c lie at tile[r * stride + c].
template <typename T>
__device__ Right<T> LoadRight(const T* tile, int stride) {
  Right<T> b;
  LoadQuarters<true, true>(tile, stride, b.pairs);
  return b;
}
// At tile[c * stride + r].
template <typename T>
__device__ Right<T> LoadRightTransposed(const T* tile, int stride) {
  Right<T> b;
  LoadQuarters<false, false>(tile, stride, b.pairs);
  return b;
}

// Sums as a left operand.
template <typename T>
__device__ Left<T> Rounded(const Sums& x) {
  Left<T> a;
#pragma unroll
  for (int i = 0; i < 4; ++i) a.pairs[i] = RoundPair<T>(x.at[i / 2][i % 2 * 2], x.at[i / 2][i % 2 * 2 + 1]);
  return a;
}

// Stores the sums, rounded: row r and column c at tile[r * stride + c]. `tile` is a multiple of 4 bytes.
template <typename T>
__device__ void StoreRounded(const Sums& x, T* tile, int stride) {
  const Left<T> pairs = Rounded<T>(x);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    T* const to = tile + (LaneRow() + i % 2 * 8) * stride + i / 2 * 8 + LaneColumn();
    *reinterpret_cast<uint32_t*>(to) = pairs.pairs[i];
  }
}

// sums += a b: two instructions, of 8 columns each.
template <typename T>
__device__ void MultiplyAdd(const Left<T>& a, const Right<T>& b, Sums* sums) {
#ifdef __CUDACC__
#if __CUDA_ARCH__ >= 800
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    float(&d)[4] = sums->at[n];
    if constexpr (std::is_same_v<T, BFloat16>) {
      asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
          "{%0, %1, %2, %3};"
          : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
          : "r"(a.pairs[0]), "r"(a.pairs[1]), "r"(a.pairs[2]), "r"(a.pairs[3]), "r"(b.pairs[2 * n]),
            "r"(b.pairs[2 * n + 1]));
    } else {
      asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
          "{%0, %1, %2, %3};"
          : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
          : "r"(a.pairs[0]), "r"(a.pairs[1]), "r"(a.pairs[2]), "r"(a.pairs[3]), "r"(b.pairs[2 * n]),
            "r"(b.pairs[2 * n + 1]));
    }
  }
#endif
#else
  // The rows of a are shared by four lanes, and so are the columns of b.
  const auto number = [](uint32_t pair, int k) {
    return static_cast<float>(std::bit_cast<T>(static_cast<uint16_t>(k == 0 ? pair : pair >> 16)));
  };
  Sums added;
  for (int lane = 0; lane < 4; ++lane) {
    const Left<T> row = __shfl_sync(0xffffffff, a, LaneRow() * 4 + lane);
    for (int odd = 0; odd < 2; ++odd) {
      const Right<T> column = __shfl_sync(0xffffffff, b, (LaneColumn() + odd) * 4 + lane);
      for (int n = 0; n < 2; ++n) {
        for (int down = 0; down < 2; ++down) {
          float& sum = added.at[n][2 * down + odd];
          for (int k = 0; k < 4; ++k) {
            sum += number(row.pairs[down + k / 2 * 2], k % 2) * number(column.pairs[2 * n + k / 2], k % 2);
          }
        }
      }
    }
  }
  for (int n = 0; n < 2; ++n) {
    for (int i = 0; i < 4; ++i) sums->at[n][i] += added.at[n][i];
  }
#endif
}

}  // namespace official::compute::mma
