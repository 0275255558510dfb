// CUDA kernel of Attention on tensor cores (attention_mma.h).

#include <cmath>
#include <limits>

#include "utils/compute/core/dtype.h"
#include "utils/compute/core/status.h"
#include "utils/compute/cuda/cuda_device.h"
#include "utils/compute/cuda/cuda_status.h"
#include "utils/compute/cuda/launch.h"
#include "utils/compute/cuda/mma.h"
#include "utils/compute/ops/attention/attention.h"
#include "utils/compute/ops/attention/attention_cuda.h"
#include "utils/compute/ops/attention/attention_mma.h"
#include "utils/compute/ops/attention/geometry.h"
#include "utils/compute/ops/elementwise/math.h"

namespace official::compute::attention_cuda {
namespace {

// 16 queries of a warp against the keys so far: of the rows LaneRow() and LaneRow() + 8.
template <int kChunks>
struct Attended {
  mma::Sums sums[kChunks];  // of weights times values
  float row_max[2] = {-std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()};
  float row_sum[2] = {};  // the lane's part
};

// Makes weights of the scores, relative to the largest score so far, and scales what was summed before.
template <int kChunks>
__device__ void WeighScores(const AttentionGeometry& g, SequenceKey random, const Place& at,
                            mma::Sums (&scores)[kTile / mma::kSize], Attended<kChunks>* attended) {
  const float scale = g.scale * kLog2E;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = at.query + mma::SumRow(2 * half);
    const int seen = g.causal ? min(at.seen, row + 1) : at.seen;
    float largest = attended->row_max[half];
#pragma unroll
    for (int j = 0; j < kTile / mma::kSize; ++j) {
      if (j >= at.groups) break;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float& score = scores[j].at[i / 2][2 * half + i % 2];
        const int key = at.key + j * mma::kSize + mma::SumColumn(i / 2, i % 2);
        score = key < seen ? score * scale : -std::numeric_limits<float>::infinity();
        largest = Larger()(largest, score);
      }
    }
    // Finite from the first tile on, since every query sees key 0.
    largest = ReduceLanes(largest, Larger());
    const float shrink = std::exp2(attended->row_max[half] - largest);
    attended->row_max[half] = largest;
    float sum = attended->row_sum[half] * shrink;
#pragma unroll
    for (int j = 0; j < kTile / mma::kSize; ++j) {
      if (j >= at.groups) break;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float& score = scores[j].at[i / 2][2 * half + i % 2];
        score = std::exp2(score - largest);
        sum += score;
      }
    }
    attended->row_sum[half] = sum;
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
#pragma unroll
      for (int i = 0; i < 4; ++i) attended->sums[c].at[i / 2][2 * half + i % 2] *= shrink;
    }
    if (!g.drop) continue;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int column = mma::SumColumn(i / 2, i % 2);
      const Philox4 words = PackedDraw(random, blockIdx.y, row, at.key / kTile * kSide + column);
#pragma unroll
      for (int j = 0; j < kTile / mma::kSize; ++j) {
        scores[j].at[i / 2][2 * half + i % 2] *= words[j] >= g.dropout.threshold ? g.dropout.scale : 0.0f;
      }
    }
  }
}

template <typename T, int kChunks>
__global__ void __launch_bounds__(kMmaThreads)
    AttendMma(AttentionGeometry g, Offsets offsets, const T* q_data, const T* k_data, const T* v_data,
              const int64_t* random_state, T* out_data, float* log_sums_data) {
  constexpr int kRows = kMmaStride<kChunks>;
  T *const q_tile = SharedTiles<T>(), *const k_tile = q_tile + kMmaTile<kChunks>;
  T* const v_tile = k_tile + kMmaTile<kChunks>;
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
  const int warp_row = threadIdx.x / 32 * mma::kSize;
  T* const q_rows = q_tile + warp_row * kRows;
  for (int query = blockIdx.z * kTile; query < queries.size(); query += gridDim.z * kTile) {
    const int rows = min(kTile, queries.size() - query);
    const int seen = g.causal ? min(keys.size(), query + rows) : keys.size();
    // Of the warp, which may have no queries.
    const int warp_query = query + warp_row;
    const int warp_rows = queries.size() - warp_query;
    const int warp_seen = warp_rows > 0 ? (g.causal ? min(seen, warp_query + mma::kSize) : seen) : 0;
    Attended<kChunks> attended;
    LoadRows<kChunks>(q, queries.begin + query, rows, q_tile);
    for (int key = 0; key < seen; key += kTile) {
      const int columns = min(kTile, seen - key);
      __syncthreads();  // the tiles before have been read
      LoadRows<kChunks>(k, keys.begin + key, columns, k_tile);
      LoadRows<kChunks>(v, keys.begin + key, columns, v_tile);
      __syncthreads();
      if (key >= warp_seen) continue;
      const int groups = (min(kTile, warp_seen - key) + mma::kSize - 1) / mma::kSize;
      mma::Sums scores[kTile / mma::kSize];
      MultiplyRows<kChunks>(q_rows, k_tile, q.columns, groups, scores);
      WeighScores(g, random, {.query = warp_query, .key = key, .groups = groups, .seen = warp_seen}, scores, &attended);
#pragma unroll
      for (int j = 0; j < kTile / mma::kSize; ++j) {
        if (j >= groups) break;
        const auto weights = mma::Rounded<T>(scores[j]);
#pragma unroll
        for (int c = 0; c < kChunks; ++c) {
          if (c * mma::kSize >= v.columns) break;
          const auto values = mma::LoadRight(v_tile + j * mma::kSize * kRows + c * mma::kSize, kRows);
          mma::MultiplyAdd(weights, values, &attended.sums[c]);
        }
      }
    }
    if (seen == 0) __syncthreads();  // q_tile has been loaded
    if (warp_rows > 0) {
      float factors[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float sum = ReduceLanes(attended.row_sum[half], math::Add());
        factors[half] = seen > 0 ? 1 / sum : 0.0f;
        const int r = mma::SumRow(2 * half);
        if (mma::LaneColumn() == 0 && r < warp_rows) {
          log_sums.data[(queries.begin + warp_query + r) * log_sums.stride] =
              seen > 0 ? attended.row_max[half] / kLog2E + std::log(sum) : 0.0f;
        }
      }
      StoreRows<kChunks>(attended.sums, factors, q_rows, queries.begin + warp_query, warp_rows, out);
    }
    __syncthreads();  // q_tile may be loaded anew
  }
}

}  // namespace

template <typename T>
absl::StatusOr<Kernel> MakeMmaAttention(const KernelSpec& spec) {
  const AttentionGeometry g(spec.node);
  return WithChunks(g, [&]<int kChunks>(std::integral_constant<int, kChunks>) -> absl::StatusOr<Kernel> {
    constexpr int64_t kBytes = 3 * kMmaTile<kChunks> * sizeof(T);
    RETURN_IF_ERROR(AskForShared(spec, &AttendMma<T, kChunks>, kBytes));
    const DataError query_error = OffsetError(spec, "query", g.queries), key_error = OffsetError(spec, "key", g.keys);
    return Kernel{[=, stream = CudaDeviceOf(spec).stream()](const KernelArgs& args) {
      const Offsets offsets = {args.input<int32_t>(attention::kQOffsets), args.input<int32_t>(attention::kKOffsets),
                               query_error, key_error};
      Launch(AttendMma<T, kChunks>, GridOf(g, g.queries), kMmaThreads, kBytes, stream, g, offsets,
             args.input<T>(attention::kQ), args.input<T>(attention::kK), args.input<T>(attention::kV),
             g.drop ? args.input<int64_t>(attention::kRandomState) : nullptr, args.output<T>(attention::kY),
             args.output<float>(attention::kLogSums));
      return LaunchStatus("AttendMma");
    }};
  });
}

template absl::StatusOr<Kernel> MakeMmaAttention<BFloat16>(const KernelSpec& spec);
template absl::StatusOr<Kernel> MakeMmaAttention<Half>(const KernelSpec& spec);

}  // namespace official::compute::attention_cuda
