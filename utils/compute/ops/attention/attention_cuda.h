// The types and functions that the CUDA kernels of attention share. In the forward and the backward pass, a block
// treats tiles of 64 queries against tiles of 64 keys, of one head of one sequence, in shared memory; a sequence of up
// to 64 tokens is one tile. Sums are made in one order, so results are reproducible. Only for CUDA code.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "utils/compute/cuda/cuda_device.h"
#include "utils/compute/ops/attention/geometry.h"

namespace official::compute::attention_cuda {

// Queries, and keys; a tile of keys takes its random words from the same draws.
inline constexpr int kTile = 64;
// The threads along each side of a tile: rows y + 16 i and columns x + 16 j are a thread's.
inline constexpr int kSide = 16;
inline constexpr int kPieces = kTile / kSide;
inline constexpr int kThreads = kSide * kSide;
// In floats, as all strides here: odd, so that columns lie in different banks.
inline constexpr int kScoreStride = kTile + 1;
static_assert(kTile == kDrawColumns && kSide == kDrawLanes);

// Heads of up to 16 * kChunks columns, filled up with zeros.
template <int kChunks>
inline constexpr int kStride = kSide* kChunks + 1;

// The arguments of the kernels besides the geometry.
struct Offsets {
  const int32_t *queries, *keys;
  DataError query_error, key_error;
};
struct Range {
  int begin = 0, end = 0;
  __device__ int size() const { return end - begin; }
};

// The rows of sequence b of `batch`; behind the last one, of the padding. False, and reported, if the offsets are not
// in order.
inline __device__ bool FindRows(const int32_t* offsets, int b, int64_t batch, int64_t rows, const DataError& error,
                                Range* range) {
  range->begin = offsets[b];
  range->end = b < batch ? offsets[b + 1] : static_cast<int>(rows);
  if (range->begin >= 0 && range->begin <= range->end && range->end <= rows && (b > 0 || range->begin == 0))
    return true;
  if (threadIdx.x == 0) error.Report(b > 0 || range->begin == 0 ? range->end : range->begin);
  return false;
}

// One head's columns of x [..., heads * columns].
template <typename T>
struct HeadColumns {
  T* data;
  int64_t stride;  // of rows
  int columns;
};
template <typename T>
__device__ HeadColumns<T> ColumnsOf(T* data, const AttentionGeometry& g, int64_t columns) {
  return {data + blockIdx.y * columns, g.heads * columns, static_cast<int>(columns)};
}

// tile [kTile][kStride] = rows [row, row + rows) of x, times scale; zeros elsewhere.
template <int kChunks, typename T>
__device__ void LoadTile(const HeadColumns<const T>& x, int row, int rows, float scale, float* tile) {
  constexpr int kColumns = kSide * kChunks;
  for (int i = threadIdx.x; i < kTile * kColumns; i += kThreads) {
    const int r = i / kColumns, c = i % kColumns;
    const bool inside = r < rows && c < x.columns;
    tile[r * kStride<kChunks> + c] = inside ? static_cast<float>(x.data[(row + r) * x.stride + c]) * scale : 0.0f;
  }
}

// Rows [row, row + rows) of y = values * factors[i], the thread's rows and columns of the tile.
template <int kChunks, typename T>
__device__ void StoreTile(const float (&values)[kPieces][kChunks], const float (&factors)[kPieces], int row, int rows,
                          const HeadColumns<T>& y) {
  const int tx = threadIdx.x % kSide, ty = threadIdx.x / kSide;
#pragma unroll
  for (int i = 0; i < kPieces; ++i) {
    const int r = ty + i * kSide;
    if (r >= rows) continue;
#pragma unroll
    for (int j = 0; j < kChunks; ++j) {
      const int c = tx + j * kSide;
      if (c < y.columns) y.data[(row + r) * y.stride + c] = T(values[i][j] * factors[i]);
    }
  }
}

template <typename T>
__device__ void ClearRows(const HeadColumns<T>& y, Range rows) {
  const int64_t count = static_cast<int64_t>(rows.size()) * y.columns;
  for (int64_t i = blockIdx.z * blockDim.x + threadIdx.x; i < count; i += gridDim.z * blockDim.x) {
    y.data[(rows.begin + i / y.columns) * y.stride + i % y.columns] = T(0.0f);
  }
}

// products[i][j] = row y + 16 i of a times row x + 16 j of b.
template <int kChunks>
__device__ void RowProducts(const float* a, const float* b, int columns, float (&products)[kPieces][kPieces]) {
  const int tx = threadIdx.x % kSide, ty = threadIdx.x / kSide;
#pragma unroll
  for (int i = 0; i < kPieces; ++i) {
#pragma unroll
    for (int j = 0; j < kPieces; ++j) products[i][j] = 0;
  }
  for (int c = 0; c < columns; ++c) {
    float of_a[kPieces], of_b[kPieces];
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      of_a[i] = a[(ty + i * kSide) * kStride<kChunks> + c];
      of_b[i] = b[(tx + i * kSide) * kStride<kChunks> + c];
    }
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
#pragma unroll
      for (int j = 0; j < kPieces; ++j) products[i][j] += of_a[i] * of_b[j];
    }
  }
}

// sums[i][j] += the sum over k < depth of score(row y + 16 i, k) * b[k][x + 16 j], where the score (r, k) lies at
// scores[r * row_stride + k * depth_stride].
template <int kChunks>
__device__ void AddProducts(const float* scores, int row_stride, int depth_stride, const float* b, int depth,
                            float (&sums)[kPieces][kChunks]) {
  const int tx = threadIdx.x % kSide, ty = threadIdx.x / kSide;
  for (int k = 0; k < depth; ++k) {
    float of_b[kChunks];
#pragma unroll
    for (int j = 0; j < kChunks; ++j) of_b[j] = b[k * kStride<kChunks> + tx + j * kSide];
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      const float score = scores[(ty + i * kSide) * row_stride + k * depth_stride];
#pragma unroll
      for (int j = 0; j < kChunks; ++j) sums[i][j] += score * of_b[j];
    }
  }
}

struct Larger {
  __device__ float operator()(float a, float b) const { return b > a ? b : a; }
};

// 1 / (1 - rate) or 0 for the thread's keys of the tile at `key`, for one query.
inline __device__ void KeepFactors(const AttentionGeometry& g, SequenceKey random, int query, int key,
                                   float (&factors)[kPieces]) {
#pragma unroll
  for (int j = 0; j < kPieces; ++j) factors[j] = 1;
  if (!g.drop) return;
  const Philox4 words = PackedDraw(random, blockIdx.y, query, key / kTile * kSide + threadIdx.x % kSide);
#pragma unroll
  for (int j = 0; j < kPieces; ++j) factors[j] = words[j] >= g.dropout.threshold ? g.dropout.scale : 0.0f;
}

inline __device__ SequenceKey RandomKey(const AttentionGeometry& g, const int64_t* random_state) {
  return g.drop ? KeyOfSequence(random_state, g.stream, blockIdx.x) : SequenceKey{};
}

// A block for each sequence (one more for the padding) and head, and for several tiles of a sequence if the average has
// several.
inline dim3 GridOf(const AttentionGeometry& g, int64_t rows) {
  constexpr int64_t kMostTiles = 16;
  const int64_t tiles = (rows / std::max<int64_t>(1, g.batch) + kTile - 1) / kTile;
  return dim3(static_cast<unsigned>(g.batch + 1), static_cast<unsigned>(g.heads),
              static_cast<unsigned>(std::clamp<int64_t>(tiles, 1, kMostTiles)));
}

// Calls f with the chunks of 16 columns that hold a head, as a constant.
template <typename F>
absl::StatusOr<Kernel> WithChunks(const AttentionGeometry& g, F f) {
  const int64_t columns = std::max(g.key_size, g.value_size);
  if (columns <= 64) return f(std::integral_constant<int, 4>());
  if (columns <= 128) return f(std::integral_constant<int, 8>());
  return absl::UnimplementedError(
      absl::StrCat("attention on GPUs takes heads of up to 128 columns, got ", columns, "; try more heads"));
}

inline DataError OffsetError(const KernelSpec& spec, const char* what, int64_t rows) {
  return CudaDeviceOf(spec).AddDataError(spec.node, [=](int32_t value) {
    return absl::StrCat(what, " offset ", value, " does not follow the one before, from 0 on, or is above ", rows);
  });
}

}  // namespace official::compute::attention_cuda
