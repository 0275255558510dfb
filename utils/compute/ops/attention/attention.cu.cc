// CUDA kernels of attention. A block treats tiles of 64 queries against tiles of 64 keys, of one head of one sequence,
// in shared memory; a sequence of up to 64 tokens is one tile. Sums are made in one order, so results are reproducible:
// the backward pass has a kernel for the keys' gradients and one for the queries', instead of atomic additions.

#include "utils/compute/ops/attention/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/dtype.h"
#include "utils/compute/core/status.h"
#include "utils/compute/cuda/cuda_device.h"
#include "utils/compute/cuda/cuda_status.h"
#include "utils/compute/cuda/launch.h"
#include "utils/compute/ops/attention/geometry.h"
#include "utils/compute/ops/elementwise/math.h"

namespace official::compute {
namespace {

constexpr int kTile = 64;  // queries, and keys; a tile of keys takes its random words from the same draws
constexpr int kSide = 16;  // threads along each side of a tile: rows y + 16 i and columns x + 16 j are a thread's
constexpr int kPieces = kTile / kSide;
constexpr int kThreads = kSide * kSide;
constexpr int kScoreStride = kTile + 1;  // floats, as all strides here: odd, so that columns lie in different banks
static_assert(kTile == kDrawColumns && kSide == kDrawLanes);

// Heads of up to 16 * kChunks columns, filled up with zeros.
template <int kChunks>
constexpr int kStride = kSide* kChunks + 1;

// What the kernels are given besides the geometry.
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
__device__ bool FindRows(const int32_t* offsets, int b, int64_t batch, int64_t rows, const DataError& error,
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
  for (int64_t i = blockIdx.z * kThreads + threadIdx.x; i < count; i += gridDim.z * kThreads) {
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

// Over the 16 threads of a row of the tile; all of the warp must call it.
template <typename Op>
__device__ float ReduceRow(float value, Op op) {
#pragma unroll
  for (int distance = kSide / 2; distance > 0; distance /= 2) {
    value = op(value, __shfl_xor_sync(0xffffffff, value, distance));
  }
  return value;
}

struct Larger {
  __device__ float operator()(float a, float b) const { return b > a ? b : a; }
};

// 1 / (1 - rate) or 0 for the thread's keys of the tile at `key`, for one query.
__device__ void KeepFactors(const AttentionGeometry& g, SequenceKey random, int query, int key,
                            float (&factors)[kPieces]) {
#pragma unroll
  for (int j = 0; j < kPieces; ++j) factors[j] = 1;
  if (!g.drop) return;
  const Philox4 words = PackedDraw(random, blockIdx.y, query, key / kTile * kSide + threadIdx.x % kSide);
#pragma unroll
  for (int j = 0; j < kPieces; ++j) factors[j] = words[j] >= g.dropout.threshold ? g.dropout.scale : 0.0f;
}

__device__ SequenceKey RandomKey(const AttentionGeometry& g, const int64_t* random_state) {
  return g.drop ? KeyOfSequence(random_state, g.stream, blockIdx.x) : SequenceKey{};
}

template <typename T, int kChunks>
__global__ void __launch_bounds__(kThreads)
    Attend(AttentionGeometry g, Offsets offsets, const T* q_data, const T* k_data, const T* v_data,
           const int64_t* random_state, T* out_data, float* log_sums_data) {
  extern __shared__ float shared[];
  float *const q_tile = shared, *const k_tile = q_tile + kTile * kStride<kChunks>;
  float *const v_tile = k_tile + kTile * kStride<kChunks>, *const weights = v_tile + kTile * kStride<kChunks>;
  const int tx = threadIdx.x % kSide, ty = threadIdx.x / kSide;
  const auto q = ColumnsOf(q_data, g, g.key_size), k = ColumnsOf(k_data, g, g.key_size);
  const auto v = ColumnsOf(v_data, g, g.value_size);
  const auto out = ColumnsOf(out_data, g, g.value_size);
  const auto log_sums = ColumnsOf(log_sums_data, g, 1);
  Range queries, keys;
  if (!FindRows(offsets.queries, blockIdx.x, g.batch, g.queries, offsets.query_error, &queries) ||
      !FindRows(offsets.keys, blockIdx.x, g.batch, g.keys, offsets.key_error, &keys)) {
    return;
  }
  if (blockIdx.x == g.batch) {
    ClearRows(out, queries);
    ClearRows(log_sums, queries);
    return;
  }
  const SequenceKey random = RandomKey(g, random_state);
  for (int query = blockIdx.z * kTile; query < queries.size(); query += gridDim.z * kTile) {
    const int rows = min(kTile, queries.size() - query);
    const int seen = g.causal ? min(keys.size(), query + rows) : keys.size();
    float sums[kPieces][kChunks] = {}, row_max[kPieces], row_sum[kPieces] = {};
#pragma unroll
    for (int i = 0; i < kPieces; ++i) row_max[i] = -std::numeric_limits<float>::infinity();
    LoadTile<kChunks>(q, queries.begin + query, rows, g.scale, q_tile);
    for (int key = 0; key < seen; key += kTile) {
      const int columns = min(kTile, seen - key);
      __syncthreads();  // the tiles before have been read
      LoadTile<kChunks>(k, keys.begin + key, columns, 1, k_tile);
      LoadTile<kChunks>(v, keys.begin + key, columns, 1, v_tile);
      __syncthreads();
      float scores[kPieces][kPieces];
      RowProducts<kChunks>(q_tile, k_tile, q.columns, scores);
#pragma unroll
      for (int i = 0; i < kPieces; ++i) {
        const int row = query + ty + i * kSide;
        bool visible[kPieces];
        float largest = row_max[i];
#pragma unroll
        for (int j = 0; j < kPieces; ++j) {
          const int column = key + tx + j * kSide;
          visible[j] = column < seen && (!g.causal || column <= row);
          if (visible[j]) largest = Larger()(largest, scores[i][j]);
        }
        // Finite from the first tile on, since every query sees key 0.
        largest = ReduceRow(largest, Larger());
        float keep[kPieces], sum = 0;
        KeepFactors(g, random, row, key, keep);
#pragma unroll
        for (int j = 0; j < kPieces; ++j) {
          const float weight = visible[j] ? math::Exp()(scores[i][j] - largest) : 0.0f;
          sum += weight;
          weights[(ty + i * kSide) * kScoreStride + tx + j * kSide] = weight * keep[j];
        }
        const float shrink = math::Exp()(row_max[i] - largest);
        row_sum[i] = row_sum[i] * shrink + ReduceRow(sum, math::Add());
        row_max[i] = largest;
#pragma unroll
        for (int j = 0; j < kChunks; ++j) sums[i][j] *= shrink;
      }
      __syncthreads();
      AddProducts<kChunks>(weights, kScoreStride, 1, v_tile, columns, sums);
    }
    float factors[kPieces];
#pragma unroll
    for (int i = 0; i < kPieces; ++i) factors[i] = seen > 0 ? 1 / row_sum[i] : 0.0f;
    StoreTile<kChunks>(sums, factors, queries.begin + query, rows, out);
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      const int r = ty + i * kSide;
      if (tx != 0 || r >= rows) continue;
      log_sums.data[(queries.begin + query + r) * log_sums.stride] =
          seen > 0 ? row_max[i] + std::log(row_sum[i]) : 0.0f;
    }
    __syncthreads();  // q_tile may be loaded anew
  }
}

// deltas [rows, heads]: of each row and head the sum of out * dout, that is, of all weights times their gradients. A
// warp for each.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    SumDeltas(int64_t count, int columns, const T* out, const T* dout, float* deltas) {
  const int64_t i = ThreadIndex<int64_t>() / 32;
  if (i >= count) return;
  float sum = 0;
  for (int c = threadIdx.x % 32; c < columns; c += 32) {
    sum += static_cast<float>(out[i * columns + c]) * static_cast<float>(dout[i * columns + c]);
  }
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xffffffff, sum, distance);
  if (threadIdx.x % 32 == 0) deltas[i] = sum;
}

// Inputs of the backward pass.
template <typename T>
struct Backward {
  const T *q, *k, *v, *dout;
  const float *log_sums, *deltas;
  const int64_t* random_state;
};

// The tiles of one block of the backward pass.
template <int kChunks>
struct BackwardTiles {
  static constexpr int kFloats = 4 * kTile * kStride<kChunks> + 2 * kTile * kScoreStride;

  __device__ explicit BackwardTiles(float* shared)
      : q(shared),
        k(q + kTile * kStride<kChunks>),
        v(k + kTile * kStride<kChunks>),
        dout(v + kTile * kStride<kChunks>),
        weights(dout + kTile * kStride<kChunks>),
        dscores(weights + kTile * kScoreStride) {}

  float *q, *k, *v, *dout;
  float *weights, *dscores;  // [query][key]
};

// Fills weights, as the values saw them, and dscores from the loaded tiles at `query` and `key` of the sequence.
template <int kChunks, typename T>
__device__ void ScoreGradients(const AttentionGeometry& g, const Backward<T>& in, const BackwardTiles<kChunks>& tiles,
                               SequenceKey random, Range queries, int num_keys, int query, int key) {
  const int tx = threadIdx.x % kSide, ty = threadIdx.x / kSide;
  float scores[kPieces][kPieces], dweights[kPieces][kPieces];
  RowProducts<kChunks>(tiles.q, tiles.k, static_cast<int>(g.key_size), scores);
  RowProducts<kChunks>(tiles.dout, tiles.v, static_cast<int>(g.value_size), dweights);
#pragma unroll
  for (int i = 0; i < kPieces; ++i) {
    const int row = query + ty + i * kSide;
    const bool inside = row < queries.size();
    const int64_t at = (queries.begin + row) * g.heads + blockIdx.y;
    const float log_sum = inside ? in.log_sums[at] : 0.0f, delta = inside ? in.deltas[at] : 0.0f;
    float keep[kPieces];
    KeepFactors(g, random, row, key, keep);
#pragma unroll
    for (int j = 0; j < kPieces; ++j) {
      const int column = key + tx + j * kSide;
      const bool visible = inside && column < num_keys && (!g.causal || column <= row);
      const float p = visible ? math::Exp()(scores[i][j] - log_sum) : 0.0f;
      const int to = (ty + i * kSide) * kScoreStride + tx + j * kSide;
      tiles.weights[to] = p * keep[j];
      tiles.dscores[to] = p * (dweights[i][j] * keep[j] - delta);
    }
  }
}

template <typename T, int kChunks>
__global__ void __launch_bounds__(kThreads)
    KeyGradients(AttentionGeometry g, Offsets offsets, Backward<T> in, T* dk_data, T* dv_data) {
  extern __shared__ float shared[];
  const BackwardTiles<kChunks> tiles(shared);
  const auto q = ColumnsOf(in.q, g, g.key_size), k = ColumnsOf(in.k, g, g.key_size);
  const auto v = ColumnsOf(in.v, g, g.value_size), dout = ColumnsOf(in.dout, g, g.value_size);
  const auto dk = ColumnsOf(dk_data, g, g.key_size), dv = ColumnsOf(dv_data, g, g.value_size);
  Range queries, keys;
  if (!FindRows(offsets.queries, blockIdx.x, g.batch, g.queries, offsets.query_error, &queries) ||
      !FindRows(offsets.keys, blockIdx.x, g.batch, g.keys, offsets.key_error, &keys)) {
    return;
  }
  if (blockIdx.x == g.batch) {
    ClearRows(dk, keys);
    ClearRows(dv, keys);
    return;
  }
  const SequenceKey random = RandomKey(g, in.random_state);
  for (int key = blockIdx.z * kTile; key < keys.size(); key += gridDim.z * kTile) {
    const int columns = min(kTile, keys.size() - key);
    float dks[kPieces][kChunks] = {}, dvs[kPieces][kChunks] = {};
    LoadTile<kChunks>(k, keys.begin + key, columns, 1, tiles.k);
    LoadTile<kChunks>(v, keys.begin + key, columns, 1, tiles.v);
    // Of equal tiles, those before see none of these keys.
    for (int query = g.causal ? key : 0; query < queries.size(); query += kTile) {
      const int rows = min(kTile, queries.size() - query);
      __syncthreads();  // the tiles before have been read
      LoadTile<kChunks>(q, queries.begin + query, rows, g.scale, tiles.q);
      LoadTile<kChunks>(dout, queries.begin + query, rows, 1, tiles.dout);
      __syncthreads();
      ScoreGradients<kChunks>(g, in, tiles, random, queries, keys.size(), query, key);
      __syncthreads();
      AddProducts<kChunks>(tiles.weights, 1, kScoreStride, tiles.dout, rows, dvs);
      AddProducts<kChunks>(tiles.dscores, 1, kScoreStride, tiles.q, rows, dks);
    }
    const float ones[kPieces] = {1, 1, 1, 1};
    StoreTile<kChunks>(dks, ones, keys.begin + key, columns, dk);
    StoreTile<kChunks>(dvs, ones, keys.begin + key, columns, dv);
    __syncthreads();
  }
}

template <typename T, int kChunks>
__global__ void __launch_bounds__(kThreads)
    QueryGradients(AttentionGeometry g, Offsets offsets, Backward<T> in, T* dq_data) {
  extern __shared__ float shared[];
  const BackwardTiles<kChunks> tiles(shared);
  const auto q = ColumnsOf(in.q, g, g.key_size), k = ColumnsOf(in.k, g, g.key_size);
  const auto v = ColumnsOf(in.v, g, g.value_size), dout = ColumnsOf(in.dout, g, g.value_size);
  const auto dq = ColumnsOf(dq_data, g, g.key_size);
  Range queries, keys;
  if (!FindRows(offsets.queries, blockIdx.x, g.batch, g.queries, offsets.query_error, &queries) ||
      !FindRows(offsets.keys, blockIdx.x, g.batch, g.keys, offsets.key_error, &keys)) {
    return;
  }
  if (blockIdx.x == g.batch) return ClearRows(dq, queries);
  const SequenceKey random = RandomKey(g, in.random_state);
  for (int query = blockIdx.z * kTile; query < queries.size(); query += gridDim.z * kTile) {
    const int rows = min(kTile, queries.size() - query);
    const int seen = g.causal ? min(keys.size(), query + rows) : keys.size();
    float dqs[kPieces][kChunks] = {};
    LoadTile<kChunks>(q, queries.begin + query, rows, g.scale, tiles.q);
    LoadTile<kChunks>(dout, queries.begin + query, rows, 1, tiles.dout);
    for (int key = 0; key < seen; key += kTile) {
      const int columns = min(kTile, seen - key);
      __syncthreads();  // the tiles before have been read
      LoadTile<kChunks>(k, keys.begin + key, columns, 1, tiles.k);
      LoadTile<kChunks>(v, keys.begin + key, columns, 1, tiles.v);
      __syncthreads();
      ScoreGradients<kChunks>(g, in, tiles, random, queries, keys.size(), query, key);
      __syncthreads();
      AddProducts<kChunks>(tiles.dscores, kScoreStride, 1, tiles.k, columns, dqs);
    }
    const float scales[kPieces] = {g.scale, g.scale, g.scale, g.scale};
    StoreTile<kChunks>(dqs, scales, queries.begin + query, rows, dq);
    __syncthreads();
  }
}

// A block for each sequence (one more for the padding) and head, and for several tiles of a sequence if the average has
// several.
dim3 GridOf(const AttentionGeometry& g, int64_t rows) {
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

// More than the 48 KB of shared memory that a kernel has without asking.
template <typename F>
absl::Status AskForShared(F* kernel, int64_t bytes) {
  return CudaStatus(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                         cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)),
                    "cudaFuncSetAttribute");
}

DataError OffsetError(const KernelSpec& spec, const char* what, int64_t rows) {
  return CudaDeviceOf(spec).AddDataError(spec.node, [=](int32_t value) {
    return absl::StrCat(what, " offset ", value, " does not follow the one before, from 0 on, or is above ", rows);
  });
}

template <typename T>
absl::StatusOr<Kernel> MakeAttention(const KernelSpec& spec) {
  const AttentionGeometry g(spec.node);
  return WithChunks(g, [&]<int kChunks>(std::integral_constant<int, kChunks>) -> absl::StatusOr<Kernel> {
    constexpr int64_t kBytes = (3 * kTile * kStride<kChunks> + kTile * kScoreStride) * sizeof(float);
    RETURN_IF_ERROR(AskForShared(&Attend<T, kChunks>, kBytes));
    const DataError query_error = OffsetError(spec, "query", g.queries), key_error = OffsetError(spec, "key", g.keys);
    return Kernel{[=, stream = CudaDeviceOf(spec).stream()](const KernelArgs& args) {
      const Offsets offsets = {args.input<int32_t>(3), args.input<int32_t>(4), query_error, key_error};
      Attend<T, kChunks><<<GridOf(g, g.queries), kThreads, kBytes, stream>>>(
          g, offsets, args.input<T>(0), args.input<T>(1), args.input<T>(2), g.drop ? args.input<int64_t>(5) : nullptr,
          args.output<T>(0), args.output<float>(1));
      return LaunchStatus("Attend");
    }};
  });
}

template <typename T>
absl::StatusOr<Kernel> MakeAttentionGrad(const KernelSpec& spec) {
  const AttentionGeometry g(spec.node);
  return WithChunks(g, [&]<int kChunks>(std::integral_constant<int, kChunks>) -> absl::StatusOr<Kernel> {
    constexpr int64_t kBytes = BackwardTiles<kChunks>::kFloats * sizeof(float);
    RETURN_IF_ERROR(AskForShared(&KeyGradients<T, kChunks>, kBytes));
    RETURN_IF_ERROR(AskForShared(&QueryGradients<T, kChunks>, kBytes));
    const DataError query_error = OffsetError(spec, "query", g.queries), key_error = OffsetError(spec, "key", g.keys);
    const int64_t count = g.queries * g.heads;
    Kernel kernel;
    kernel.scratch_bytes = count * static_cast<int64_t>(sizeof(float));
    kernel.run = [=, stream = CudaDeviceOf(spec).stream()](const KernelArgs& args) -> absl::Status {
      const Offsets offsets = {args.input<int32_t>(3), args.input<int32_t>(4), query_error, key_error};
      auto* const deltas = static_cast<float*>(args.scratch);
      if (count > 0) {
        SumDeltas<<<NumBlocks(count, kThreads / 32), kThreads, 0, stream>>>(count, static_cast<int>(g.value_size),
                                                                            args.input<T>(5), args.input<T>(7), deltas);
        RETURN_IF_ERROR(LaunchStatus("SumDeltas"));
      }
      const Backward<T> in = {args.input<T>(0),
                              args.input<T>(1),
                              args.input<T>(2),
                              args.input<T>(7),
                              args.input<float>(6),
                              deltas,
                              g.drop ? args.input<int64_t>(8) : nullptr};
      KeyGradients<T, kChunks>
          <<<GridOf(g, g.keys), kThreads, kBytes, stream>>>(g, offsets, in, args.output<T>(1), args.output<T>(2));
      RETURN_IF_ERROR(LaunchStatus("KeyGradients"));
      QueryGradients<T, kChunks><<<GridOf(g, g.queries), kThreads, kBytes, stream>>>(g, offsets, in, args.output<T>(0));
      return LaunchStatus("QueryGradients");
    };
    return kernel;
  });
}

constexpr int kDecodeWarps = 4, kDecodeChunks = 8;  // up to 8 * 32 columns of values

// The tensors of DecodeAttention.
template <typename T>
struct Decoding {
  const T *q, *k, *v;
  T *k_cache, *v_cache, *out;
  const int32_t *rows, *lengths;
  DataError row_error, length_error;
};

// A block for each sequence and head. Its warps take keys in turn, each with a softmax of its own so far; then the
// warps' sums are added.
template <typename T>
__global__ void __launch_bounds__(32 * kDecodeWarps) AttendCache(DecodeGeometry g, Decoding<T> d) {
  const int64_t i = blockIdx.x, b = i / g.heads, h = i % g.heads;
  const int length = d.lengths[b], lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int key_size = static_cast<int>(g.key_size), value_size = static_cast<int>(g.value_size);
  if (length < 0 || length >= g.known) {
    if (threadIdx.x == 0) d.length_error.Report(length);
    return;
  }
  const int32_t* const rows = d.rows + b * g.known;
  bool outside = false;
  for (int p = threadIdx.x; p < length; p += 32 * kDecodeWarps) {
    if (rows[p] >= 0 && rows[p] < g.rows) continue;
    d.row_error.Report(rows[p]);
    outside = true;
  }
  if (__syncthreads_or(outside)) return;

  // The newest token is read from where it comes from: other threads write it to the caches.
  const T *const q = d.q + i * key_size, *const newest_k = d.k + i * key_size, *const newest_v = d.v + i * value_size;
  const int64_t newest = (b * g.positions + length) * g.heads + h;
  for (int c = threadIdx.x; c < key_size; c += 32 * kDecodeWarps) d.k_cache[newest * key_size + c] = newest_k[c];
  for (int c = threadIdx.x; c < value_size; c += 32 * kDecodeWarps) d.v_cache[newest * value_size + c] = newest_v[c];
  float max = -std::numeric_limits<float>::infinity(), sum = 0, values[kDecodeChunks] = {};
  for (int p = warp; p <= length; p += kDecodeWarps) {
    const int64_t token = p < length ? (rows[p] * g.positions + p) * g.heads + h : newest;
    const T* const key = p < length ? d.k_cache + token * key_size : newest_k;
    const T* const value = p < length ? d.v_cache + token * value_size : newest_v;
    float score = 0;
    for (int c = lane; c < key_size; c += 32) score += static_cast<float>(q[c]) * static_cast<float>(key[c]);
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) score += __shfl_xor_sync(0xffffffff, score, distance);
    score *= g.scale;
    const float largest = Larger()(max, score);
    const float shrink = math::Exp()(max - largest), weight = math::Exp()(score - largest);
    max = largest;
    sum = sum * shrink + weight;
#pragma unroll
    for (int j = 0; j < kDecodeChunks; ++j) {
      const int c = lane + 32 * j;
      if (c < value_size) values[j] = values[j] * shrink + weight * static_cast<float>(value[c]);
    }
  }
  __shared__ float maxes[kDecodeWarps], sums[kDecodeWarps], all_values[kDecodeWarps][32 * kDecodeChunks];
  if (lane == 0) {
    maxes[warp] = max;
    sums[warp] = sum;
  }
#pragma unroll
  for (int j = 0; j < kDecodeChunks; ++j) all_values[warp][lane + 32 * j] = values[j];
  __syncthreads();
  float largest = maxes[0], total = 0, factors[kDecodeWarps];
  for (int w = 1; w < kDecodeWarps; ++w) largest = Larger()(largest, maxes[w]);
  for (int w = 0; w < kDecodeWarps; ++w) {
    factors[w] = sums[w] > 0 ? math::Exp()(maxes[w] - largest) : 0.0f;
    total += sums[w] * factors[w];
  }
  for (int c = threadIdx.x; c < value_size; c += 32 * kDecodeWarps) {
    float value = 0;
    for (int w = 0; w < kDecodeWarps; ++w) value += all_values[w][c] * factors[w];
    d.out[i * value_size + c] = T(value / total);
  }
}

template <typename T>
absl::StatusOr<Kernel> MakeDecodeAttention(const KernelSpec& spec) {
  const DecodeGeometry g(spec.node);
  if (g.value_size > 32 * kDecodeChunks) {
    return absl::UnimplementedError(absl::StrCat("attention to a cache on GPUs takes heads of up to ",
                                                 32 * kDecodeChunks, " columns, got ", g.value_size));
  }
  CudaDevice& device = CudaDeviceOf(spec);
  const DataError row_error = device.AddDataError(spec.node, [rows = g.rows](int32_t value) {
    return absl::StrCat("cache row ", value, " is outside [0, ", rows, ")");
  });
  const DataError length_error = device.AddDataError(spec.node, [known = g.known](int32_t value) {
    return absl::StrCat("length ", value, " is outside [0, ", known, ")");
  });
  return Kernel{[=, stream = device.stream()](const KernelArgs& args) {
    if (g.batch == 0) return absl::OkStatus();
    const Decoding<T> d = {.q = args.input<T>(0),
                           .k = args.input<T>(1),
                           .v = args.input<T>(2),
                           .k_cache = args.variable<T>(3),
                           .v_cache = args.variable<T>(4),
                           .out = args.output<T>(0),
                           .rows = args.input<int32_t>(5),
                           .lengths = args.input<int32_t>(6),
                           .row_error = row_error,
                           .length_error = length_error};
    AttendCache<<<static_cast<unsigned>(g.batch * g.heads), 32 * kDecodeWarps, 0, stream>>>(g, d);
    return LaunchStatus("AttendCache");
  }};
}

const bool registered = [] {
  const auto add = [](OpName op, auto make) {
    RegisterKernel({.op = op, .device_kind = "cuda", .dtypes = StorageTypes(), .make = ForStorageType(make)});
  };
  add(op::Attention, []<typename T>(const KernelSpec& spec, T) { return MakeAttention<T>(spec); });
  add(op::AttentionGrad, []<typename T>(const KernelSpec& spec, T) { return MakeAttentionGrad<T>(spec); });
  add(op::DecodeAttention, []<typename T>(const KernelSpec& spec, T) { return MakeDecodeAttention<T>(spec); });
  return true;
}();

}  // namespace
}  // namespace official::compute
