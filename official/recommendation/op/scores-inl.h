// Kernels of scores_cpu.cc, compiled for each instruction set: see utils/compute/cpu/foreach_isa.h.

#include "utils/compute/cpu/vec-inl.h"

constexpr int kMaxVecs = 2;
// Sums fill the registers except for the weights and a broadcast.
constexpr int kMaxRows = (kRegisters - kMaxVecs - 1) / kMaxVecs;

// ReLU; NaN stays NaN.
OFFICIAL_VEC_INLINE Vec Rectified(Vec x) { return Select(Greater(Zero(), x), Zero(), x); }

struct DenseArgs {
  const float* in;  // a tile, in blocks of columns
  int64_t depth;    // a multiple of kBlock
  const float *weights, *bias;
  int64_t weights_stride;  // distance from one vector of columns to the next
  float* out;
  int64_t row_stride, vec_stride;
  bool relu, rounded;  // operations on the output
};

// Computes kRows rows and kVecs vectors of columns. Every row has the same bits, whatever kRows is.
template <int kRows, int kVecs>
void DenseTile(const DenseArgs& d) {
  Vec sum[kRows][kVecs];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < kVecs; ++v) sum[r][v] = Load(d.bias + v * kLanes);
  }
  const float *in = d.in, *w = d.weights, *w1 = d.weights + d.weights_stride;
  for (int64_t i = 0; i < d.depth; i += kBlock, in += kTile * kBlock) {
#pragma GCC unroll 8
    for (int c = 0; c < kBlock; ++c, w += kBlock, w1 += kBlock) {
      const Vec first = Load(w), second = kVecs == 2 ? Load(w1) : first;
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        const Vec x = Broadcast(in[r * kBlock + c]);
        sum[r][0] = Fma(x, first, sum[r][0]);
        if constexpr (kVecs == 2) sum[r][1] = Fma(x, second, sum[r][1]);
      }
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < kVecs; ++v) {
      Vec y = sum[r][v];
      if (d.relu) y = Rectified(y);
      if (d.rounded) y = RoundToBFloat16(y);
      Store(d.out + r * d.row_stride + v * d.vec_stride, y);
    }
  }
}

using DenseFunction = void (*)(const DenseArgs&);
template <int kVecs, size_t... kRow>
constexpr std::array<DenseFunction, sizeof...(kRow)> DenseTiles(std::index_sequence<kRow...>) {
  return {&DenseTile<kRow + 1, kVecs>...};
}
constexpr std::array<DenseFunction, kMaxRows> kDenseTiles[kMaxVecs] = {
    DenseTiles<1>(std::make_index_sequence<kMaxRows>()), DenseTiles<2>(std::make_index_sequence<kMaxRows>())};

// Computes out = in * layer for the first rows of a tile: column c of row r of the output is at
// c / kBlock * block_stride + r * row_stride + c % kBlock.
void Dense(const PackedLayer& layer, const float* in, int64_t rows, bool relu, bool rounded, float* out,
           int64_t row_stride, int64_t block_stride) {
  const int64_t depth = Padded(layer.in), vecs = (layer.out + kLanes - 1) / kLanes;
  const int64_t parts = (rows + kMaxRows - 1) / kMaxRows;
  for (int64_t v = 0; v < vecs; v += kMaxVecs) {
    const int64_t block = v * kLanes / kBlock;
    const DenseFunction* const tiles = kDenseTiles[std::min<int64_t>(kMaxVecs, vecs - v) - 1].data();
    for (int64_t p = 0; p < parts; ++p) {
      const int64_t row = rows * p / parts, count = rows * (p + 1) / parts - row;
      tiles[count - 1]({.in = in + row * kBlock,
                        .depth = depth,
                        .weights = layer.weights + block * depth * kBlock,
                        .bias = layer.bias + v * kLanes,
                        .weights_stride = kLanes == kBlock ? depth * kBlock : kLanes,
                        .out = out + block * block_stride + row * row_stride,
                        .row_stride = row_stride,
                        .vec_stride = kLanes == kBlock ? block_stride : kLanes,
                        .relu = relu,
                        .rounded = rounded});
    }
  }
}

void CopyToTile(const float* row, int64_t n, int64_t r, bool rounded, float* tile) {
  for (int64_t c = 0; c < n; c += kLanes) {
    const int count = static_cast<int>(std::min<int64_t>(kLanes, n - c));
    const Vec x = LoadFirst(row + c, count);
    StoreFirst(tile + c / kBlock * kBlock * kTile + r * kBlock + c % kBlock, rounded ? RoundToBFloat16(x) : x, count);
  }
}

// Computes the items' part of the first layer's output.
void ItemHalves(const Network& net, const int32_t* items, int64_t count, const TileMemory& t) {
  const int64_t width = Padded(net.item_half.out);
  for (int64_t i = 0; i < count; i += kTile) {
    const int64_t rows = std::min(kTile, count - i);
    for (int64_t r = 0; r < rows; ++r)
      CopyToTile(net.mlp_item + items[i + r] * net.half, net.half, r, net.rounded, t.embeddings);
    Dense(net.item_half, t.embeddings, rows, /*relu=*/false, /*rounded=*/false, t.inputs[0], width, kBlock);
    for (int64_t r = 0; r < rows; ++r) {
      std::memcpy(net.of_items + items[i + r] * width, t.inputs[0] + r * width, width * sizeof(float));
    }
  }
}

// Computes what all scores of a user have in common.
void StartUser(const Network& net, int64_t user, TileMemory& t) {
  t.constant = net.rating_bias;
  for (int64_t f = 0; f < net.factors; ++f) t.product[f] = net.gmf_user[user * net.factors + f] * net.rating[f];
  const float* const embedding = net.mlp_user + user * net.half;
  if (net.num_layers > 0) {
    CopyToTile(embedding, net.half, 0, net.rounded, t.embeddings);
    Dense(net.user_half, t.embeddings, 1, /*relu=*/false, /*rounded=*/false, t.of_user, 0, kBlock);
  } else {
    for (int64_t i = 0; i < net.half; ++i) t.constant += embedding[i] * net.rating[net.factors + i];
  }
}

// Returns sum + the product of a row of n floats and weights, which are padded.
OFFICIAL_VEC_INLINE Vec AddProduct(const float* row, const float* weights, int64_t n, Vec sum) {
  int64_t c = 0;
  for (; c + kLanes <= n; c += kLanes) sum = Fma(Load(row + c), Load(weights + c), sum);
  return c < n ? Fma(LoadFirst(row + c, static_cast<int>(n - c)), Load(weights + c), sum) : sum;
}

// Computes the scores of the user of the last StartUser and of `rows` items, at most kTile.
void ScoreTile(const Network& net, const int32_t* items, int64_t rows, const TileMemory& t, float* scores) {
  // Prefetches are needed because the tables are larger than the inner caches.
  const auto fetch_soon = [&](const float* table, int64_t width, int64_t r) {
    constexpr int64_t kAhead = 4;
    return table + items[std::min(r + kAhead, rows - 1)] * width;
  };
  if (net.num_layers > 0) {
    const int64_t width = Padded(net.item_half.out);
    const bool rounded = net.rounded && net.num_layers > 1;
    for (int64_t r = 0; r < rows; ++r) {
      const float* const of_item = net.of_items + items[r] * width;
      const float* const soon = fetch_soon(net.of_items, width, r);
      for (int64_t c = 0; c < width; c += kBlock) {
        _mm_prefetch(reinterpret_cast<const char*>(soon + c), _MM_HINT_T0);
#pragma GCC unroll 2
        for (int64_t i = c; i < c + kBlock; i += kLanes) {
          const Vec sum = Add(Load(of_item + i), Load(t.of_user + i)), x = Rectified(sum);
          Store(t.inputs[0] + c * kTile + r * kBlock + i - c, rounded ? RoundToBFloat16(x) : x);
        }
      }
    }
  }
  for (int k = 0; k + 1 < net.num_layers; ++k) {
    const bool rounded = net.rounded && k + 2 < net.num_layers;
    Dense(net.layers[k], t.inputs[k], rows, /*relu=*/true, rounded, t.inputs[k + 1], kBlock, kTile * kBlock);
  }
  const float* const last = net.num_layers > 0 ? t.inputs[net.num_layers - 1] : nullptr;
  for (int64_t begin = 0; begin < rows; begin += kLanes) {
    Vec sums[kLanes];
    for (int64_t i = 0; i < kLanes; ++i) {
      const int64_t r = std::min(begin + i, rows - 1), item = items[r];
      const float* const soon = fetch_soon(net.gmf_item, net.factors, r);
      for (int64_t f = 0; f < net.factors; f += kBlock) {
        _mm_prefetch(reinterpret_cast<const char*>(soon + f), _MM_HINT_T0);
      }
      Vec sum = AddProduct(net.gmf_item + item * net.factors, t.product, net.factors, Zero());
      if (net.num_layers == 0) sum = AddProduct(net.mlp_item + item * net.half, net.mlp_rating, net.half, sum);
      for (int64_t c = 0; c < net.last_width; c += kBlock) {
        sum = AddProduct(last + c * kTile + r * kBlock, net.mlp_rating + c, kBlock, sum);
      }
      sums[i] = sum;
    }
    const int n = static_cast<int>(std::min<int64_t>(kLanes, rows - begin));
    StoreFirst(scores + begin, Add(SumEach(sums), Broadcast(t.constant)), n);
  }
}

void ScoreUser(const Network& net, int64_t user, const int32_t* items, int64_t candidates, TileMemory& t,
               float* scores) {
  StartUser(net, user, t);
  const int64_t tiles = (candidates + kTile - 1) / kTile;
  int64_t ahead = 0;
  for (int64_t i = 0; i < tiles; ++i) {
    const Share tile = ShareOf(candidates, i, tiles);
    ScoreTile(net, items + tile.begin, tile.size(), t, scores + tile.begin);
    for (int64_t c = tile.begin; c < tile.end && ahead < net.enough; ++c) {
      if (!(scores[c] >= scores[0]) || items[c] == items[0]) continue;
      if (std::find(t.ahead, t.ahead + ahead, items[c]) == t.ahead + ahead) t.ahead[ahead++] = items[c];
    }
    if (net.enough == 0 || ahead < net.enough) continue;
    std::fill(scores + tile.end, scores + candidates, std::numeric_limits<float>::max());
    return;
  }
}

constexpr Kernels kKernels = {&ItemHalves, &ScoreUser};
