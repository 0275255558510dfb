// CUDA kernel of Attention, on tiles (attention_cuda.h), for what tensor cores do not take (attention_mma.h).

#include <cmath>
#include <limits>

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

// Over the 16 threads of a row of the tile; all of the warp must call it.
template <typename Op>
__device__ float ReduceRow(float value, Op op) {
#pragma unroll
  for (int distance = kSide / 2; distance > 0; distance /= 2) {
    value = op(value, __shfl_xor_sync(0xffffffff, value, distance));
  }
  return value;
}

template <typename T, int kChunks>
__global__ void __launch_bounds__(kThreads)
    Attend(AttentionGeometry g, Offsets offsets, const T* q_data, const T* k_data, const T* v_data,
           const int64_t* random_state, T* out_data, float* log_sums_data) {
  float* const shared = DynamicShared<float>();
  float *const q_tile = shared, *const k_tile = q_tile + kTile * kStride<kChunks>;
  float *const v_tile = k_tile + kTile * kStride<kChunks>, *const weights = k_tile;
  static_assert(kScoreStride <= kStride<kChunks>);
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
      __syncthreads();  // the weights take the place of the keys
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

template <typename T>
absl::StatusOr<Kernel> MakeAttention(const KernelSpec& spec) {
  const AttentionGeometry g(spec.node);
  if constexpr (kIsNarrowFloat<T>) {
    if (TakesMma(spec, g)) return MakeMmaAttention<T>(spec);
  }
  return WithChunks(g, [&]<int kChunks>(std::integral_constant<int, kChunks>) -> absl::StatusOr<Kernel> {
    constexpr int64_t kBytes = 3 * kTile * kStride<kChunks> * sizeof(float);
    RETURN_IF_ERROR(AskForShared(spec, &Attend<T, kChunks>, kBytes));
    const DataError query_error = OffsetError(spec, "query", g.queries), key_error = OffsetError(spec, "key", g.keys);
    return Kernel{[=, stream = CudaDeviceOf(spec).stream()](const KernelArgs& args) {
      const Offsets offsets = {args.input<int32_t>(attention::kQOffsets), args.input<int32_t>(attention::kKOffsets),
                               query_error, key_error};
      Launch(Attend<T, kChunks>, GridOf(g, g.queries), kThreads, kBytes, stream, g, offsets,
             args.input<T>(attention::kQ), args.input<T>(attention::kK), args.input<T>(attention::kV),
             g.drop ? args.input<int64_t>(attention::kRandomState) : nullptr, args.output<T>(attention::kY),
             args.output<float>(attention::kLogSums));
      return LaunchStatus("Attend");
    }};
  });
}

const bool registered = RegisterKernel({
    .op = op::Attention,
    .device_kind = "cuda",
    .dtypes = StorageTypes(),
    .make = ForStorageType([]<typename T>(const KernelSpec& spec, T) { return MakeAttention<T>(spec); }),
});

}  // namespace
}  // namespace official::compute::attention_cuda
