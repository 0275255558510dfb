// CUDA kernels of AttentionGrad, on tiles (attention_cuda.h), for what tensor cores do not take (attention_mma.h): one
// for the keys' gradients and one for the queries', instead of atomic additions.

#include "utils/compute/core/dtype.h"
#include "utils/compute/core/status.h"
#include "utils/compute/cuda/cuda_device.h"
#include "utils/compute/cuda/cuda_status.h"
#include "utils/compute/cuda/launch.h"
#include "utils/compute/ops/attention/attention.h"
#include "utils/compute/ops/attention/attention_cuda.h"
#include "utils/compute/ops/attention/attention_mma.h"
#include "utils/compute/ops/attention/geometry.h"
#include "utils/compute/ops/elementwise/math.h"

namespace official::compute::attention_cuda {
namespace {

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
  float* const shared = DynamicShared<float>();
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
  float* const shared = DynamicShared<float>();
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

template <typename T>
absl::StatusOr<Kernel> MakeAttentionGrad(const KernelSpec& spec) {
  const AttentionGeometry g(spec.node);
  if constexpr (kIsNarrowFloat<T>) {
    if (TakesMma(spec, g)) return MakeMmaAttentionGrad<T>(spec);
  }
  return WithChunks(g, [&]<int kChunks>(std::integral_constant<int, kChunks>) -> absl::StatusOr<Kernel> {
    constexpr int64_t kBytes = BackwardTiles<kChunks>::kFloats * sizeof(float);
    RETURN_IF_ERROR(AskForShared(spec, &KeyGradients<T, kChunks>, kBytes));
    RETURN_IF_ERROR(AskForShared(spec, &QueryGradients<T, kChunks>, kBytes));
    const DataError query_error = OffsetError(spec, "query", g.queries), key_error = OffsetError(spec, "key", g.keys);
    const int64_t count = g.queries * g.heads;
    Kernel kernel;
    kernel.scratch_bytes = count * static_cast<int64_t>(sizeof(float));
    kernel.run = [=, stream = CudaDeviceOf(spec).stream()](const KernelArgs& args) -> absl::Status {
      const Offsets offsets = {args.input<int32_t>(attention_grad::kQOffsets),
                               args.input<int32_t>(attention_grad::kKOffsets), query_error, key_error};
      const T *const y = args.input<T>(attention_grad::kY), *const dy = args.input<T>(attention_grad::kDy);
      auto* const deltas = static_cast<float*>(args.scratch);
      if (count > 0) {
        Launch(SumDeltas<T>, NumBlocks(count, kThreads / 32), kThreads, 0, stream, count,
               static_cast<int>(g.value_size), y, dy, deltas);
        RETURN_IF_ERROR(LaunchStatus("SumDeltas"));
      }
      const Backward<T> in = {args.input<T>(attention_grad::kQ),
                              args.input<T>(attention_grad::kK),
                              args.input<T>(attention_grad::kV),
                              dy,
                              args.input<float>(attention_grad::kLogSums),
                              deltas,
                              g.drop ? args.input<int64_t>(attention_grad::kRandomState) : nullptr};
      Launch(KeyGradients<T, kChunks>, GridOf(g, g.keys), kThreads, kBytes, stream, g, offsets, in,
             args.output<T>(attention_grad::kDk), args.output<T>(attention_grad::kDv));
      RETURN_IF_ERROR(LaunchStatus("KeyGradients"));
      Launch(QueryGradients<T, kChunks>, GridOf(g, g.queries), kThreads, kBytes, stream, g, offsets, in,
             args.output<T>(attention_grad::kDq));
      return LaunchStatus("QueryGradients");
    };
    return kernel;
  });
}

const bool registered = RegisterKernel({
    .op = op::AttentionGrad,
    .device_kind = "cuda",
    .dtypes = StorageTypes(),
    .make = ForStorageType([]<typename T>(const KernelSpec& spec, T) { return MakeAttentionGrad<T>(spec); }),
});

}  // namespace
}  // namespace official::compute::attention_cuda
