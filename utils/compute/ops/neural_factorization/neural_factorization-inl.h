// Kernels of neural_factorization_cpu.cc, compiled for each instruction set: see utils/compute/cpu/foreach_isa.h.

#include "utils/compute/cpu/tile_multiply-inl.h"

constexpr int kBlockVecs = kBlock / kLanes;

// TileMultiply for 1, 2, ... rows.
template <int kDepthBlock, int kRowStride, size_t... kRow>
constexpr std::array<TileFunction, sizeof...(kRow)> TilesByRows(std::index_sequence<kRow...>) {
  return {&TileMultiply<kRow + 1, kBlockVecs, kDepthBlock, kRowStride, 0>...};
}
// Of rows of blocks, and of the transposed.
constexpr auto kRowTiles = TilesByRows<kBlock, kBlock>(std::make_index_sequence<kMaxTileRows>());
constexpr auto kColumnTiles = TilesByRows<1, 1>(std::make_index_sequence<kMaxTileRows>());

OFFICIAL_VEC_INLINE float SumOf(Vec v) {
  alignas(64) float x[kLanes];
  Store(x, v);
#pragma GCC unroll 4
  for (int half = kLanes / 2; half > 0; half /= 2) {
#pragma GCC unroll 8
    for (int i = 0; i < half; ++i) x[i] += x[i + half];
  }
  return x[0];
}

// out [samples, columns] = in [samples, depth] * panels, or added to it; depth and columns multiples of kBlock.
// Matrices of samples are in blocks, [columns / kBlock][kTile][kBlock]; panels are [columns / kBlock][depth][kBlock].
void Multiply(const float* in, int64_t depth, const float* panels, int64_t columns, int64_t samples, int64_t tile,
              bool accumulate, float* out) {
  const int64_t row_tiles = (samples + kMaxTileRows - 1) / kMaxTileRows;
  for (int64_t c = 0; c < columns; c += kBlock) {
    for (int64_t t = 0; t < row_tiles; ++t) {
      const int64_t row = samples * t / row_tiles, rows = samples * (t + 1) / row_tiles - row;
      kRowTiles[rows - 1]({.a = in + row * kBlock,
                           .w = panels + c * depth,
                           .w_stride = kBlock,
                           .out = out + c * tile + row * kBlock,
                           .blocks = depth / kBlock,
                           .block_stride = tile * kBlock,
                           .height = 1,
                           .y_stride = 0,
                           .width = 1,
                           .x_stride = 0,
                           .out_stride = kBlock,
                           .accumulate = accumulate});
    }
  }
}

// panels [depth, columns] += in [samples, depth]^T * dy [samples, columns].
void AddWeightGradient(const float* in, int64_t depth, const float* dy, int64_t columns, int64_t samples, int64_t tile,
                       float* panels) {
  constexpr int64_t kTilesOfBlock = (kBlock + kMaxTileRows - 1) / kMaxTileRows;
  for (int64_t c = 0; c < columns; c += kBlock) {
    for (int64_t d = 0; d < depth; d += kBlock) {
      for (int64_t t = 0; t < kTilesOfBlock; ++t) {
        const int64_t row = kBlock * t / kTilesOfBlock, rows = kBlock * (t + 1) / kTilesOfBlock - row;
        kColumnTiles[rows - 1]({.a = in + d * tile + row,
                                .w = dy + c * tile,
                                .w_stride = kBlock,
                                .out = panels + c * depth + (d + row) * kBlock,
                                .blocks = 1,
                                .block_stride = 0,
                                .height = 1,
                                .y_stride = 0,
                                .width = samples,
                                .x_stride = kBlock,
                                .out_stride = kBlock,
                                .accumulate = true});
      }
    }
  }
}

// Row `r` of a matrix in blocks, from column `column` on.
void CopyRowIn(const float* row, int64_t n, int64_t r, int64_t column, int64_t tile, float* out) {
  for (int64_t i = 0; i < n;) {
    const int64_t c = column + i;
    float* const to = out + c / kBlock * tile * kBlock + r * kBlock + c % kBlock;
    if (c % kBlock == 0 && n - i >= kBlock) {
#pragma GCC unroll 2
      for (int v = 0; v < kBlock; v += kLanes) Store(to + v, Load(row + i + v));
      i += kBlock;
    } else {
      *to = row[i++];
    }
  }
}
void CopyRowOut(const float* in, int64_t n, int64_t r, int64_t column, int64_t tile, float* row) {
  for (int64_t i = 0; i < n;) {
    const int64_t c = column + i;
    const float* const from = in + c / kBlock * tile * kBlock + r * kBlock + c % kBlock;
    if (c % kBlock == 0 && n - i >= kBlock) {
#pragma GCC unroll 2
      for (int v = 0; v < kBlock; v += kLanes) Store(row + i + v, Load(from + v));
      i += kBlock;
    } else {
      row[i++] = *from;
    }
  }
}

// Calls f(offset) for each vector of the first `samples` rows of a matrix of `columns` columns in blocks.
template <typename F>
OFFICIAL_VEC_INLINE void ForEachVec(int64_t columns, int64_t samples, int64_t tile, F f) {
  for (int64_t c = 0; c < columns; c += kBlock) {
    for (int64_t i = 0; i < samples * kBlock; i += kLanes) f(c * tile + i);
  }
}

// The scores of a tile; what the backward pass needs of it stays in `t`.
void Forward(const Network& net, const Samples& s, TileMemory& t) {
  const int64_t tile = net.tile;
  for (int64_t r = 0; r < s.count; ++r) {
    const int64_t user = s.users[r], item = s.items[r];
    if (net.factors > 0) {
      CopyRowIn(net.gmf_user + user * net.factors, net.factors, r, 0, tile, t.gmf_user);
      CopyRowIn(net.gmf_item + item * net.factors, net.factors, r, 0, tile, t.gmf_item);
    }
    if (net.half > 0) {
      CopyRowIn(net.mlp_user + user * net.half, net.half, r, 0, tile, t.inputs[0]);
      CopyRowIn(net.mlp_item + item * net.half, net.half, r, net.half, tile, t.inputs[0]);
    }
  }
  for (int k = 0; k < net.num_layers; ++k) {
    const PackedLayer& layer = net.layers[k];
    float* const out = t.inputs[k + 1];
    for (int64_t c = 0; c < layer.out; c += kBlock) {
      for (int64_t r = 0; r < s.count; ++r) {
#pragma GCC unroll 2
        for (int v = 0; v < kBlock; v += kLanes) Store(out + c * tile + r * kBlock + v, Load(layer.bias + c + v));
      }
    }
    Multiply(t.inputs[k], layer.in, layer.weights, layer.out, s.count, tile, /*accumulate=*/true, out);
    ForEachVec(layer.out, s.count, tile, [=](int64_t i) {
      const Vec x = Load(out + i);
      Store(out + i, KeepIf(Greater(x, Zero()), x));
    });
  }
  const float* const last = t.inputs[net.num_layers];
  for (int64_t r = 0; r < s.count; ++r) {
    Vec sum = Zero();
    for (int64_t c = 0; c < net.gmf_width; c += kLanes) {
      const int64_t i = c / kBlock * tile * kBlock + r * kBlock + c % kBlock;
      sum = Fma(Mul(Load(t.gmf_user + i), Load(t.gmf_item + i)), Load(net.rating + c), sum);
    }
    for (int64_t c = 0; c < net.mlp_width; c += kLanes) {
      const int64_t i = c / kBlock * tile * kBlock + r * kBlock + c % kBlock;
      sum = Fma(Load(last + i), Load(net.rating + net.gmf_width + c), sum);
    }
    t.scores[r] = SumOf(sum) + net.rating_bias;
  }
}

// Turns scores into the gradients of the loss by them, and returns the sum of the losses.
float LossAndGradient(const Network& net, const Samples& s, TileMemory& t) {
  for (int64_t r = 0; r < s.count; ++r) {
    const float shifted = t.scores[r] - net.shift;
    const float z = std::min(std::max(shifted, -net.limit), net.limit), y = s.labels[r];
    const float e = math::Exp()(-std::abs(z)), inverse = 1 / (1 + e);
    const float p = z >= 0 ? inverse : e * inverse;
    t.losses[r] = std::max(z, 0.0f) - y * z + math::Log()(1 + e);
    t.scores[r] = z == shifted ? (p - y) * net.weight : 0;
  }
  float sum = 0;
  for (int64_t r = 0; r < s.count; ++r) sum += t.losses[r];
  return sum;
}

// From the gradients of the scores.
void Backward(const Network& net, const Samples& s, TileMemory& t, const UnitGradients& g) {
  const int64_t tile = net.tile;
  const int last = net.num_layers;
  for (int64_t r = 0; r < s.count; ++r) *g.rating_bias += t.scores[r];
  // The last layer: of its kernel, of what went into it.
  for (int64_t c = 0; c < net.gmf_width; c += kLanes) {
    Vec of_kernel = Load(g.rating + c);
    const Vec kernel = Load(net.rating + c);
    for (int64_t r = 0; r < s.count; ++r) {
      const int64_t i = c / kBlock * tile * kBlock + r * kBlock + c % kBlock;
      const Vec d = Broadcast(t.scores[r]), user = Load(t.gmf_user + i), item = Load(t.gmf_item + i);
      of_kernel = Fma(d, Mul(user, item), of_kernel);
      const Vec of_product = Mul(d, kernel);
      Store(t.gmf_user + i, Mul(of_product, item));
      Store(t.gmf_item + i, Mul(of_product, user));
    }
    Store(g.rating + c, of_kernel);
  }
  float *dy = t.gradients[0], *dx = t.gradients[1];
  for (int64_t c = 0; c < net.mlp_width; c += kLanes) {
    Vec of_kernel = Load(g.rating + net.gmf_width + c);
    const Vec kernel = Load(net.rating + net.gmf_width + c);
    for (int64_t r = 0; r < s.count; ++r) {
      const int64_t i = c / kBlock * tile * kBlock + r * kBlock + c % kBlock;
      const Vec d = Broadcast(t.scores[r]), x = Load(t.inputs[last] + i);
      of_kernel = Fma(d, x, of_kernel);
      const Vec of_x = Mul(d, kernel);
      Store(dy + i, last > 0 ? KeepIf(Greater(x, Zero()), of_x) : of_x);
    }
    Store(g.rating + net.gmf_width + c, of_kernel);
  }
  for (int k = last; k-- > 0;) {
    const PackedLayer& layer = net.layers[k];
    for (int64_t c = 0; c < layer.out; c += kLanes) {
      Vec sum = Load(g.biases[k] + c);
      for (int64_t r = 0; r < s.count; ++r) {
        sum = Add(sum, Load(dy + c / kBlock * tile * kBlock + r * kBlock + c % kBlock));
      }
      Store(g.biases[k] + c, sum);
    }
    AddWeightGradient(t.inputs[k], layer.in, dy, layer.out, s.count, tile, g.weights[k]);
    Multiply(dy, layer.out, layer.transposed, layer.in, s.count, tile, /*accumulate=*/false, dx);
    if (k > 0) {
      const float* const x = t.inputs[k];
      ForEachVec(layer.in, s.count, tile,
                 [=](int64_t i) { Store(dx + i, KeepIf(Greater(Load(x + i), Zero()), Load(dx + i))); });
    }
    std::swap(dx, dy);
  }
  for (int64_t r = 0; r < s.count; ++r) {
    if (net.factors > 0) {
      CopyRowOut(t.gmf_user, net.factors, r, 0, tile, g.gmf_user + (s.first + r) * net.factors);
      CopyRowOut(t.gmf_item, net.factors, r, 0, tile, g.gmf_item + (s.first + r) * net.factors);
    }
    if (net.half > 0) {
      CopyRowOut(dy, net.half, r, 0, tile, g.mlp_user + (s.first + r) * net.half);
      CopyRowOut(dy, net.half, r, net.half, tile, g.mlp_item + (s.first + r) * net.half);
    }
  }
}

float Train(const Network& net, const Samples& s, TileMemory& t, const UnitGradients& g) {
  Forward(net, s, t);
  const float loss = LossAndGradient(net, s, t);
  Backward(net, s, t, g);
  return loss;
}

constexpr Kernels kKernels = {&Forward, &Train};
