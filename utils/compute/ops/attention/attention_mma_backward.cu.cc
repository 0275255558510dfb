// CUDA kernel of AttentionGrad on tensor cores (attention_mma.h).
//
// A block has a whole head of a sequence, so that the scores are computed once and nothing is added atomically: five
// products, where one kernel for the keys and one for the queries need seven. The gradients of a tile of keys stay in
// registers. Those of queries that see several tiles of keys wait in global memory meanwhile, in float, each number
// with the thread that adds to it. Sequences of up to 256 tokens, 4096 in a batch, are 128 blocks of eight heads.
//
// An attention of Transformer base, of 4096 queries and keys in sentences of 32 tokens, reads q, k, v, y and dy and
// writes dq, dk and dv, 33.7 MB with the logarithms, and multiplies 0.67 GFLOP: by the data sheet of an H200 7 us for
// the bytes and 0.7 us for the products.

#include <cmath>
#include <cstdint>

#include "utils/compute/core/dtype.h"
#include "utils/compute/core/status.h"
#include "utils/compute/cuda/cuda_device.h"
#include "utils/compute/cuda/cuda_status.h"
#include "utils/compute/cuda/launch.h"
#include "utils/compute/cuda/mma.h"
#include "utils/compute/cuda/pack.h"
#include "utils/compute/ops/attention/attention.h"
#include "utils/compute/ops/attention/attention_cuda.h"
#include "utils/compute/ops/attention/attention_mma.h"
#include "utils/compute/ops/attention/geometry.h"
#include "utils/compute/ops/elementwise/math.h"
#include "utils/compute/ops/packed/packed_draws.h"

namespace official::compute::attention_cuda {
namespace {

// The groups of 16 rows of a tile.
constexpr int kGroups = kTile / mma::kSize;
// Of these the scores are in registers together.
constexpr int kGroupsAtOnce = 2;
// The stride of the rows of a tile of queries by keys.
constexpr int kScores = kMmaStride<kGroups>;

// The inputs and the results.
template <typename T>
struct Tensors {
  const T *q, *k, *v, *y, *dy;
  const float* log_sums;
  const int64_t* random_state;
  T *dq, *dk, *dv;
  float* dq_sums;  // [queries, heads * key_size]: of queries that see several tiles of keys
};

// Of one head.
template <typename T>
struct Head {
  __device__ Head(const AttentionGeometry& g, const Tensors<T>& t)
      : q(ColumnsOf(t.q, g, g.key_size)),
        k(ColumnsOf(t.k, g, g.key_size)),
        v(ColumnsOf(t.v, g, g.value_size)),
        y(ColumnsOf(t.y, g, g.value_size)),
        dy(ColumnsOf(t.dy, g, g.value_size)),
        log_sums(ColumnsOf(t.log_sums, g, 1)),
        dq(ColumnsOf(t.dq, g, g.key_size)),
        dk(ColumnsOf(t.dk, g, g.key_size)),
        dv(ColumnsOf(t.dv, g, g.value_size)),
        dq_sums(ColumnsOf(t.dq_sums, g, g.key_size)) {}

  HeadColumns<const T> q, k, v, y, dy;
  HeadColumns<const float> log_sums;
  HeadColumns<T> dq, dk, dv;
  HeadColumns<float> dq_sums;
};

// The block's tiles in shared memory.
template <typename T, int kChunks>
struct Tiles {
  static constexpr int kScoreTile = kTile * kScores;
  static constexpr int64_t kBytes = (4 * kMmaTile<kChunks> + 2 * kScoreTile) * sizeof(T);

  __device__ explicit Tiles(T* shared)
      : q(shared),
        k(q + kMmaTile<kChunks>),
        v(k + kMmaTile<kChunks>),
        dy(v + kMmaTile<kChunks>),
        weights(dy + kMmaTile<kChunks>),
        dscores(weights + kScoreTile) {}

  T *q, *k, *v, *dy;
  T *weights, *dscores;  // [query][key]
};

// Of the rows LaneRow() and LaneRow() + 8 of the warp's queries.
struct RowStatistics {
  float log_sums[2] = {};  // times log2(e)
  float deltas[2] = {};    // the sums of y * dy, that is, of all weights times their gradients
};

// `dy` is the warp's rows in shared memory, the first of which is row `row` of the tensors.
template <int kChunks, typename T>
__device__ RowStatistics FindStatistics(const Head<T>& head, const T* dy, int row, int rows) {
  RowStatistics found;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int r = mma::SumRow(2 * half);
    float delta = 0;
    if (r < rows) {
      found.log_sums[half] = head.log_sums.data[(row + r) * head.log_sums.stride] * kLog2E;
      for (int c = threadIdx.x % 4 * kMove<T>; c < head.y.columns; c += 4 * kMove<T>) {
        const auto of_y = LoadPack<kMove<T>>(head.y.data + (row + r) * head.y.stride + c);
        const auto of_dy = LoadPack<kMove<T>>(dy + r * kMmaStride<kChunks> + c);
#pragma unroll
        for (int i = 0; i < kMove<T>; ++i) delta += of_y.Float(i) * of_dy.Float(i);
      }
    }
    found.deltas[half] = ReduceLanes(delta, math::Add());
  }
  return found;
}

// The weights of the lane in a tile that dropout keeps: a bit for at[i / 2][2 * half + i % 2] of the sums of each group
// j of keys, at 8 j + 4 half + i.
__device__ uint32_t KeptWeights(const AttentionGeometry& g, SequenceKey random, const Place& at) {
  if (!g.drop) return ~uint32_t{0};
  uint32_t kept = 0;
#pragma unroll 1
  for (int i = 0; i < 8; ++i) {
    const int row = at.query + mma::SumRow(i / 4 * 2), column = mma::SumColumn(i / 2 % 2, i % 2);
    const Philox4 words = PackedDraw(random, blockIdx.y, row, at.key / kTile * kSide + column);
#pragma unroll
    for (int j = 0; j < kGroups; ++j) kept |= uint32_t{words[j] >= g.dropout.threshold} << (8 * j + i);
  }
  return kept;
}

// Makes weights, as the values saw them, of the scores, and gradients of the scores of those of the weights.
__device__ void WeighGradients(const AttentionGeometry& g, uint32_t kept, const Place& at, int rows,
                               const RowStatistics& statistics, mma::Sums (&scores)[kGroupsAtOnce],
                               mma::Sums (&dweights)[kGroupsAtOnce]) {
  const float scale = g.scale * kLog2E;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = at.query + mma::SumRow(2 * half);
    const int seen = mma::SumRow(2 * half) < rows ? (g.causal ? min(at.seen, row + 1) : at.seen) : 0;
#pragma unroll
    for (int j = 0; j < kGroupsAtOnce; ++j) {
      if (j >= at.groups) break;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float& score = scores[j].at[i / 2][2 * half + i % 2];
        float& dweight = dweights[j].at[i / 2][2 * half + i % 2];
        const bool visible = at.key + j * mma::kSize + mma::SumColumn(i / 2, i % 2) < seen;
        const float weight = visible ? std::exp2(score * scale - statistics.log_sums[half]) : 0.0f;
        const float keep = kept >> (8 * j + 4 * half + i) & 1 ? g.dropout.scale : 0.0f;
        score = weight * keep;
        dweight = weight * (dweight * keep - statistics.deltas[half]);
      }
    }
  }
}

// Fills the warp's rows of tiles.weights and tiles.dscores, up to the keys that its queries see.
template <typename T, int kChunks>
__device__ void ScoreGradients(const AttentionGeometry& g, SequenceKey random, const Head<T>& head,
                               const Tiles<T, kChunks>& tiles, const Place& at, const Range& queries) {
  constexpr int kRows = kMmaStride<kChunks>;
  const int warp_row = at.query % kTile, rows = queries.size() - at.query;
  const T *const q = tiles.q + warp_row * kRows, *const dy = tiles.dy + warp_row * kRows;
  const RowStatistics statistics = FindStatistics<kChunks>(head, dy, queries.begin + at.query, rows);
  const uint32_t kept = KeptWeights(g, random, at);
#pragma unroll 1
  for (int j = 0; j < at.groups; j += kGroupsAtOnce) {
    const int column = j * mma::kSize;
    const Place part = {at.query, at.key + column, min(kGroupsAtOnce, at.groups - j), at.seen};
    mma::Sums scores[kGroupsAtOnce], dweights[kGroupsAtOnce];
    MultiplyRows<kChunks>(q, tiles.k + column * kRows, head.q.columns, part.groups, scores);
    MultiplyRows<kChunks>(dy, tiles.v + column * kRows, head.v.columns, part.groups, dweights);
    WeighGradients(g, kept >> 8 * j, part, rows, statistics, scores, dweights);
#pragma unroll
    for (int i = 0; i < kGroupsAtOnce; ++i) {
      if (i >= part.groups) break;
      const int to = warp_row * kScores + column + i * mma::kSize;
      mma::StoreRounded(scores[i], tiles.weights + to, kScores);
      mma::StoreRounded(dweights[i], tiles.dscores + to, kScores);
    }
  }
}

// Adds to sums the products of 16 rows of a, with kTransposed columns, and the columns of b, over the groups
// [first, last) of 16 rows of b.
template <bool kTransposed, int kChunks, typename T, int kSums>
__device__ void AddTileProducts(const T* a, const T* b, int columns, int first, int last, mma::Sums (&sums)[kSums]) {
  constexpr int kRows = kMmaStride<kChunks>;
  for (int j = first; j < last; ++j) {
    mma::Left<T> left;
    if constexpr (kTransposed) {
      left = mma::LoadLeftTransposed(a + j * mma::kSize * kScores, kScores);
    } else {
      left = mma::LoadLeft(a + j * mma::kSize, kScores);
    }
#pragma unroll
    for (int c = 0; c < kSums; ++c) {
      if (c * mma::kSize >= columns) break;
      mma::MultiplyAdd(left, mma::LoadRight(b + j * mma::kSize * kRows + c * mma::kSize, kRows), &sums[c]);
    }
  }
}

// Calls f with each pair of the lane's sums and its place in x, whose row `row` is the warp's first.
template <int kChunks, typename F>
__device__ void ForEachPair(const HeadColumns<float>& x, int row, int rows, mma::Sums (&sums)[kChunks], F f) {
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    if (c * mma::kSize >= x.columns) break;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int r = mma::SumRow(i % 2 * 2);
      if (r >= rows) continue;
      f(x.data + (row + r) * x.stride + c * mma::kSize + mma::SumColumn(i / 2, 0), &sums[c].at[i / 2][i % 2 * 2]);
    }
  }
}

// Adds to the gradients of the warp's queries, which are complete with the last of the tiles of keys that they see.
// They pass through the warp's rows of tiles.weights, which nobody else may read any more.
template <typename T, int kChunks>
__device__ void AddQueryGradients(const Head<T>& head, const Tiles<T, kChunks>& tiles, float scale, const Place& at,
                                  const Range& queries) {
  const int row = queries.begin + at.query, rows = queries.size() - at.query;
  const int begin = at.query % kTile * kScores;
#pragma unroll 1
  for (int c = 0; c < kChunks * mma::kSize; c += kTile) {
    if (c >= head.dq.columns) break;
    const int columns = min(kTile, head.dq.columns - c);
    const HeadColumns<float> waiting = {head.dq_sums.data + c, head.dq_sums.stride, columns};
    mma::Sums dqs[kGroups];
    AddTileProducts<false, kChunks>(tiles.dscores + begin, tiles.k + c, columns, 0, at.groups, dqs);
    if (at.key > 0) {
      ForEachPair(waiting, row, rows, dqs, [](const float* from, float* sums) {
        const auto pack = LoadPack<2>(from);
        sums[0] += pack.at[0];
        sums[1] += pack.at[1];
      });
    }
    if (at.key + kTile >= at.seen) {
      const HeadColumns<T> dq = {head.dq.data + c, head.dq.stride, columns};
      StoreRows<kGroups>(dqs, {scale, scale}, tiles.weights + begin, row, rows, dq);
    } else {
      ForEachPair(waiting, row, rows, dqs, [](float* to, const float* sums) {
        StorePack(to, Pack<float, 2>{{sums[0], sums[1]}});
      });
    }
  }
}

// Adds what the queries of the tile at `query` give to the gradients of the warp's 16 of the keys at `key`, and the
// gradients of the queries with respect to these keys to theirs.
template <typename T, int kChunks>
__device__ void AddTile(const AttentionGeometry& g, SequenceKey random, const Head<T>& head,
                        const Tiles<T, kChunks>& tiles, const Range& queries, int query, int key, int num_keys,
                        mma::Sums (&dks)[kChunks], mma::Sums (&dvs)[kChunks]) {
  const int warp = threadIdx.x / 32, rows = min(kTile, queries.size() - query);
  Place at = {.query = query + warp * mma::kSize, .key = key, .groups = 0, .seen = 0};
  if (at.query < queries.size()) {
    at.seen = g.causal ? min(num_keys, at.query + mma::kSize) : num_keys;
    at.groups = (min(kTile, at.seen - key) + mma::kSize - 1) / mma::kSize;
    ScoreGradients(g, random, head, tiles, at, queries);
  }
  __syncthreads();
  if (key + warp * mma::kSize < num_keys) {
    const int first = g.causal && query == key ? warp : 0, last = (rows + mma::kSize - 1) / mma::kSize;
    AddTileProducts<true, kChunks>(tiles.weights + warp * mma::kSize, tiles.dy, head.v.columns, first, last, dvs);
    AddTileProducts<true, kChunks>(tiles.dscores + warp * mma::kSize, tiles.q, head.q.columns, first, last, dks);
  }
  __syncthreads();  // what follows reads the tile of keys and the warp's own rows only
  if (at.groups > 0) AddQueryGradients(head, tiles, g.scale, at, queries);
}

template <typename T, int kChunks>
__global__ void __launch_bounds__(kMmaThreads, kChunks <= 4 ? 3 : 2)
    AttendGradMma(AttentionGeometry g, Offsets offsets, Tensors<T> tensors) {
  const Tiles<T, kChunks> tiles(SharedTiles<T>());
  const Head<T> head(g, tensors);
  Range queries, keys;
  if (!FindRows(offsets.queries, blockIdx.x, g.batch, g.queries, offsets.query_error, &queries) ||
      !FindRows(offsets.keys, blockIdx.x, g.batch, g.keys, offsets.key_error, &keys)) {
    return;
  }
  const bool padding = blockIdx.x == g.batch;
  if (padding || keys.size() == 0) ClearRows(head.dq, queries);
  if (padding) {
    ClearRows(head.dk, keys);
    ClearRows(head.dv, keys);
    return;
  }
  const SequenceKey random = RandomKey(g, tensors.random_state);
  for (int key = 0; key < keys.size(); key += kTile) {
    const int columns = min(kTile, keys.size() - key);
    mma::Sums dks[kChunks], dvs[kChunks];
    LoadRows<kChunks>(head.k, keys.begin + key, columns, tiles.k);
    LoadRows<kChunks>(head.v, keys.begin + key, columns, tiles.v);
    // Of equal tiles, those before see none of these keys.
    for (int query = g.causal ? key : 0; query < queries.size(); query += kTile) {
      const int rows = min(kTile, queries.size() - query);
      LoadRows<kChunks>(head.q, queries.begin + query, rows, tiles.q);
      LoadRows<kChunks>(head.dy, queries.begin + query, rows, tiles.dy);
      __syncthreads();
      AddTile(g, random, head, tiles, queries, query, key, keys.size(), dks, dvs);
    }
    const int warp_key = threadIdx.x / 32 * mma::kSize, row = keys.begin + key + warp_key;
    T* const rows_of_warp = tiles.q + warp_key * kMmaStride<kChunks>;
    StoreRows<kChunks>(dks, {g.scale, g.scale}, rows_of_warp, row, columns - warp_key, head.dk);
    StoreRows<kChunks>(dvs, {1, 1}, rows_of_warp, row, columns - warp_key, head.dv);
    __syncthreads();  // the tiles may be loaded anew
  }
}

}  // namespace

template <typename T>
absl::StatusOr<Kernel> MakeMmaAttentionGrad(const KernelSpec& spec) {
  const AttentionGeometry g(spec.node);
  return WithChunks(g, [&]<int kChunks>(std::integral_constant<int, kChunks>) -> absl::StatusOr<Kernel> {
    constexpr int64_t kBytes = Tiles<T, kChunks>::kBytes;
    RETURN_IF_ERROR(AskForShared(spec, &AttendGradMma<T, kChunks>, kBytes));
    const DataError query_error = OffsetError(spec, "query", g.queries), key_error = OffsetError(spec, "key", g.keys);
    Kernel kernel;
    kernel.scratch_bytes = g.queries * g.heads * g.key_size * static_cast<int64_t>(sizeof(float));
    kernel.run = [=, stream = CudaDeviceOf(spec).stream()](const KernelArgs& args) {
      const Offsets offsets = {args.input<int32_t>(attention_grad::kQOffsets),
                               args.input<int32_t>(attention_grad::kKOffsets), query_error, key_error};
      const Tensors<T> tensors = {
          .q = args.input<T>(attention_grad::kQ),
          .k = args.input<T>(attention_grad::kK),
          .v = args.input<T>(attention_grad::kV),
          .y = args.input<T>(attention_grad::kY),
          .dy = args.input<T>(attention_grad::kDy),
          .log_sums = args.input<float>(attention_grad::kLogSums),
          .random_state = g.drop ? args.input<int64_t>(attention_grad::kRandomState) : nullptr,
          .dq = args.output<T>(attention_grad::kDq),
          .dk = args.output<T>(attention_grad::kDk),
          .dv = args.output<T>(attention_grad::kDv),
          .dq_sums = static_cast<float*>(args.scratch),
      };
      const dim3 blocks(static_cast<unsigned>(g.batch + 1), static_cast<unsigned>(g.heads));
      Launch(AttendGradMma<T, kChunks>, blocks, kMmaThreads, kBytes, stream, g, offsets, tensors);
      return LaunchStatus("AttendGradMma");
    };
    return kernel;
  });
}

template absl::StatusOr<Kernel> MakeMmaAttentionGrad<BFloat16>(const KernelSpec& spec);
template absl::StatusOr<Kernel> MakeMmaAttentionGrad<Half>(const KernelSpec& spec);

}  // namespace official::compute::attention_cuda
