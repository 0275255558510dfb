// Kernels of neural_factorization_cpu.cc, compiled for each instruction set: see utils/compute/cpu/foreach_isa.h.

#include "utils/compute/cpu/tile_multiply-inl.h"

// How a tile's matrices lie in memory, and what their products multiply.
template <int kColumns, Product kWhat>
struct Layout {
  static constexpr int kBlock = kColumns;
  static constexpr Product kProduct = kWhat;
  static constexpr bool kPairs = kWhat == Product::kPairs;
  static constexpr int kPerWord = kPairs ? 2 : 1;
  static constexpr int kBlockVecs = kBlock / kLanes;
  static constexpr int kBlockWords = kBlock / kPerWord;

  // Of a number in a matrix of numbers; of a pair of samples in Operand::steps.
  static constexpr int64_t At(int64_t sample, int64_t column, int64_t tile) {
    return column / kBlock * tile * kBlock + sample * kBlock + column % kBlock;
  }
  static constexpr int64_t PairAt(int64_t sample, int64_t column, int64_t tile) {
    return column / kBlock * (tile / 2) * kBlock + sample / 2 * kBlock + column % kBlock;
  }
};

// TileMultiply for 1, 2, ... rows.
template <typename L, int kDepthBlock, int kRowStride, size_t... kRow>
constexpr std::array<TileFunction, sizeof...(kRow)> TilesByRows(std::index_sequence<kRow...>) {
  return {&TileMultiply<kRow + 1, L::kBlockVecs, kDepthBlock, kRowStride, 0, L::kPairs>...};
}
// Of rows of blocks, and of the transposed.
template <typename L>
constexpr auto kRowTiles = TilesByRows<L, L::kBlockWords, L::kBlockWords>(std::make_index_sequence<kMaxTileRows>());
template <typename L>
constexpr auto kColumnTiles = TilesByRows<L, 1, 1>(std::make_index_sequence<kMaxTileRows>());

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

// Fetches some of the lines that the next tile needs: spread over the arithmetic, because a core has only a few dozen
// buffers for lines on their way.
OFFICIAL_VEC_INLINE void FetchSome(LinesAhead& lines) {
  constexpr int kSome = 6;
  const int end = std::min(lines.next + kSome, lines.count);
  for (; lines.next < end; ++lines.next) _mm_prefetch(lines.line[lines.next], _MM_HINT_T1);
}

constexpr int64_t kRowsAhead = 4;

// out [samples, columns] = rows [samples, depth] * panels; depth and columns multiples of the block.
template <typename L>
void Multiply(const float* rows, int64_t depth, const float* panels, int64_t columns, int64_t samples, int64_t tile,
              LinesAhead& lines, float* out) {
  const int64_t row_tiles = (samples + kMaxTileRows - 1) / kMaxTileRows;
  for (int64_t c = 0; c < columns; c += L::kBlock) {
    for (int64_t t = 0; t < row_tiles; ++t) {
      const int64_t row = samples * t / row_tiles, height = samples * (t + 1) / row_tiles - row;
      kRowTiles<L>[height - 1]({.a = rows + row * L::kBlockWords,
                                .w = panels + c * depth / L::kPerWord,
                                .w_stride = L::kBlock,
                                .out = out + c * tile + row * L::kBlock,
                                .blocks = depth / L::kBlock,
                                .block_stride = tile * L::kBlockWords,
                                .height = 1,
                                .y_stride = 0,
                                .width = 1,
                                .x_stride = 0,
                                .out_stride = L::kBlock,
                                .accumulate = false});
      FetchSome(lines);
    }
  }
}

// panels [depth, columns] += in [samples, depth]^T * dy [samples, columns].
template <typename L>
void AddWeightGradient(const Operand& in, int64_t depth, const Operand& dy, int64_t columns, int64_t samples,
                       int64_t tile, LinesAhead& lines, float* panels) {
  constexpr int64_t kTilesOfBlock = (L::kBlock + kMaxTileRows - 1) / kMaxTileRows;
  for (int64_t c = 0; c < columns; c += L::kBlock) {
    for (int64_t d = 0; d < depth; d += L::kBlock) {
      for (int64_t t = 0; t < kTilesOfBlock; ++t) {
        const int64_t row = L::kBlock * t / kTilesOfBlock, height = L::kBlock * (t + 1) / kTilesOfBlock - row;
        kColumnTiles<L>[height - 1]({.a = in.steps + d * tile / L::kPerWord + row,
                                     .w = dy.steps + c * tile / L::kPerWord,
                                     .w_stride = L::kBlock,
                                     .out = panels + c * depth + (d + row) * L::kBlock,
                                     .blocks = 1,
                                     .block_stride = 0,
                                     .height = 1,
                                     .y_stride = 0,
                                     .width = (samples + L::kPerWord - 1) / L::kPerWord,
                                     .x_stride = L::kBlock,
                                     .out_stride = L::kBlock,
                                     .accumulate = true});
      }
      FetchSome(lines);
    }
  }
}

// Row `r` of a matrix, from column `column` on.
template <typename L>
void CopyRowIn(const float* row, int64_t n, int64_t r, int64_t column, int64_t tile, float* out) {
  for (int64_t i = 0; i < n;) {
    float* const to = out + L::At(r, column + i, tile);
    if ((column + i) % kLanes == 0 && n - i >= kLanes) {
      Store(to, Load(row + i));
      i += kLanes;
    } else {
      *to = row[i++];
    }
  }
}
// With `stream` past the caches: rows must be whole vectors then.
template <typename L>
void CopyRowOut(const float* in, int64_t n, int64_t r, int64_t column, int64_t tile, bool stream, float* row) {
  for (int64_t i = 0; i < n;) {
    const float* const from = in + L::At(r, column + i, tile);
    if ((column + i) % kLanes == 0 && n - i >= kLanes) {
      if (stream) {
        Stream(row + i, Load(from));
      } else {
        Store(row + i, Load(from));
      }
      i += kLanes;
    } else {
      row[i++] = *from;
    }
  }
}

// Writes the numbers of kLanes columns of two samples, of which the second may not be there, as products take them.
template <typename L>
OFFICIAL_VEC_INLINE void Put(Vec x, Vec next, bool has_next, int64_t r, int64_t c, int64_t tile, const Operand& to) {
  const int64_t at = L::At(r, c, tile);
#if OFFICIAL_ISA_BF16
  if constexpr (L::kPairs) {
    uint16_t* const rows = reinterpret_cast<uint16_t*>(to.rows) + at;
    StoreBFloat16(rows, x);
    if (has_next) StoreBFloat16(rows + L::kBlock, next);
    Store(to.steps + L::PairAt(r, c, tile), Pairs(x, next));
    return;
  }
#endif
  if constexpr (L::kProduct == Product::kRounded) {
    x = RoundToBFloat16(x);
    next = RoundToBFloat16(next);
  }
  Store(to.rows + at, x);
  if (has_next) Store(to.rows + at + L::kBlock, next);
}

// Which of kLanes columns of a sample are greater than zero.
template <typename L>
OFFICIAL_VEC_INLINE Mask Positive(const Operand& x, int64_t r, int64_t c, int64_t tile) {
  const int64_t at = L::At(r, c, tile);
#if OFFICIAL_ISA_BF16
  if constexpr (L::kPairs) return PositiveBFloat16(reinterpret_cast<const uint16_t*>(x.rows) + at);
#endif
  return Greater(Load(x.rows + at), Zero());
}

// What may be computed of the numbers of kLanes columns. Not lambdas: in a template they would not be compiled for the
// instruction set.
struct Same {
  OFFICIAL_VEC_INLINE Vec operator()(Vec x, int64_t) const { return x; }
};
struct ReluOfSum {
  const float* bias;
  OFFICIAL_VEC_INLINE Vec operator()(Vec x, int64_t c) const {
    const Vec y = Add(x, Load(bias + c));
    return KeepIf(Greater(y, Zero()), y);
  }
};

// Puts compute(Vec, column) of a matrix of numbers, which may be the operand's own.
template <typename L, typename F>
OFFICIAL_VEC_INLINE void PutAll(const float* from, int64_t columns, int64_t samples, int64_t tile, const Operand& to,
                                F compute) {
  for (int64_t c = 0; c < columns; c += kLanes) {
    for (int64_t r = 0; r < samples; r += 2) {
      const float* const at = from + L::At(r, c, tile);
      const bool has_next = r + 1 < samples;
      const Vec x = compute(Load(at), c), next = has_next ? compute(Load(at + L::kBlock), c) : Zero();
      Put<L>(x, next, has_next, r, c, tile, to);
    }
  }
}

// The scores of a tile; what the backward pass needs of it stays in `t`.
template <typename L>
void Forward(const Network& net, const Samples& s, TileMemory& t) {
  const int64_t tile = net.tile;
  const bool deep = net.num_layers > 0;
  float* const gathered = !deep ? t.last : L::kPairs ? t.sums[0] : t.inputs[0].rows;
  for (int64_t r = 0; r < s.count; ++r) {
    const int64_t user = s.users[r], item = s.items[r];
    if (net.is_large && r + kRowsAhead < s.count) {
      // From where FetchSome left them.
      const int64_t next_user = s.users[r + kRowsAhead], next_item = s.items[r + kRowsAhead];
      Fetch(net.gmf_user + next_user * net.factors, net.factors);
      Fetch(net.gmf_item + next_item * net.factors, net.factors);
      Fetch(net.mlp_user + next_user * net.half, net.half);
      Fetch(net.mlp_item + next_item * net.half, net.half);
    }
    if (net.factors > 0) {
      CopyRowIn<L>(net.gmf_user + user * net.factors, net.factors, r, 0, tile, t.gmf_user);
      CopyRowIn<L>(net.gmf_item + item * net.factors, net.factors, r, 0, tile, t.gmf_item);
    }
    if (net.half > 0) {
      CopyRowIn<L>(net.mlp_user + user * net.half, net.half, r, 0, tile, gathered);
      CopyRowIn<L>(net.mlp_item + item * net.half, net.half, r, net.half, tile, gathered);
    }
  }
  if (deep && L::kProduct != Product::kFloat) {
    PutAll<L>(gathered, net.layers[0].in, s.count, tile, t.inputs[0], Same());
  }
  for (int k = 0; k < net.num_layers; ++k) {
    const PackedLayer& layer = net.layers[k];
    const bool is_last = k + 1 == net.num_layers;
    float* const out = is_last ? t.last : L::kPairs ? t.sums[0] : t.inputs[k + 1].rows;
    Multiply<L>(t.inputs[k].rows, layer.in, layer.weights, layer.out, s.count, tile, t.lines, out);
    const ReluOfSum relu = {layer.bias};
    if (is_last) {
      PutAll<Layout<L::kBlock, Product::kFloat>>(out, layer.out, s.count, tile, {out, out}, relu);
    } else {
      PutAll<L>(out, layer.out, s.count, tile, t.inputs[k + 1], relu);
    }
  }
  for (int64_t r = 0; r < s.count; ++r) {
    Vec sum = Zero();
    for (int64_t c = 0; c < net.gmf_width; c += kLanes) {
      const int64_t i = L::At(r, c, tile);
      sum = Fma(Mul(Load(t.gmf_user + i), Load(t.gmf_item + i)), Load(net.rating + c), sum);
    }
    for (int64_t c = 0; c < net.mlp_width; c += kLanes) {
      sum = Fma(Load(t.last + L::At(r, c, tile)), Load(net.rating + net.gmf_width + c), sum);
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
template <typename L>
void Backward(const Network& net, const Samples& s, TileMemory& t, const UnitGradients& g) {
  const int64_t tile = net.tile;
  const int last = net.num_layers;
  for (int64_t r = 0; r < s.count; ++r) *g.rating_bias += t.scores[r];
  // The last layer: of its kernel, of what went into it.
  for (int64_t c = 0; c < net.gmf_width; c += kLanes) {
    Vec of_kernel = Load(g.rating + c);
    const Vec kernel = Load(net.rating + c);
    for (int64_t r = 0; r < s.count; ++r) {
      const int64_t i = L::At(r, c, tile);
      const Vec d = Broadcast(t.scores[r]), user = Load(t.gmf_user + i), item = Load(t.gmf_item + i);
      of_kernel = Fma(d, Mul(user, item), of_kernel);
      const Vec of_product = Mul(d, kernel);
      Store(t.gmf_user + i, Mul(of_product, item));
      Store(t.gmf_item + i, Mul(of_product, user));
    }
    Store(g.rating + c, of_kernel);
  }
  float *dy = t.sums[0], *dx = t.sums[1];
  for (int64_t c = 0; c < net.mlp_width; c += kLanes) {
    Vec of_kernel = Load(g.rating + net.gmf_width + c);
    const Vec kernel = Load(net.rating + net.gmf_width + c);
    for (int64_t r = 0; r < s.count; ++r) {
      const int64_t i = L::At(r, c, tile);
      const Vec d = Broadcast(t.scores[r]), x = Load(t.last + i);
      of_kernel = Fma(d, x, of_kernel);
      const Vec of_x = Mul(d, kernel);
      Store(dy + i, last > 0 ? KeepIf(Greater(x, Zero()), of_x) : of_x);
    }
    Store(g.rating + net.gmf_width + c, of_kernel);
  }
  for (int k = last; k-- > 0;) {
    const PackedLayer& layer = net.layers[k];
    const Operand of_y = L::kPairs ? t.of_output : Operand{dy, dy};
    for (int64_t c = 0; c < layer.out; c += kLanes) {
      Vec sum = Load(g.biases[k] + c);
      for (int64_t r = 0; r < s.count; r += 2) {
        const bool has_next = r + 1 < s.count;
        Vec d = Load(dy + L::At(r, c, tile)), next = has_next ? Load(dy + L::At(r + 1, c, tile)) : Zero();
        if (k + 1 < last) {  // behind the last it is zero where it should be
          d = KeepIf(Positive<L>(t.inputs[k + 1], r, c, tile), d);
          if (has_next) next = KeepIf(Positive<L>(t.inputs[k + 1], r + 1, c, tile), next);
        }
        sum = Add(sum, Add(d, next));
        Put<L>(d, next, has_next, r, c, tile, of_y);
      }
      Store(g.biases[k] + c, sum);
    }
    AddWeightGradient<L>(t.inputs[k], layer.in, of_y, layer.out, s.count, tile, t.lines, g.weights[k]);
    Multiply<L>(of_y.rows, layer.out, layer.transposed, layer.in, s.count, tile, t.lines, dx);
    std::swap(dx, dy);
  }
  for (int64_t r = 0; r < s.count; ++r) {
    if (net.factors > 0) {
      CopyRowOut<L>(t.gmf_user, net.factors, r, 0, tile, g.stream, g.gmf_user + (s.first + r) * net.factors);
      CopyRowOut<L>(t.gmf_item, net.factors, r, 0, tile, g.stream, g.gmf_item + (s.first + r) * net.factors);
    }
    if (net.half > 0) {
      CopyRowOut<L>(dy, net.half, r, 0, tile, g.stream, g.mlp_user + (s.first + r) * net.half);
      CopyRowOut<L>(dy, net.half, r, net.half, tile, g.stream, g.mlp_item + (s.first + r) * net.half);
    }
  }
  if (g.stream) _mm_sfence();
}

template <typename L>
float Train(const Network& net, const Samples& s, TileMemory& t, const UnitGradients& g) {
  Forward<L>(net, s, t);
  const float loss = LossAndGradient(net, s, t);
  Backward<L>(net, s, t, g);
  return loss;
}

template <int kBlock, Product kProduct>
constexpr TrainFunction kTrain = &Train<Layout<kBlock, kProduct>>;
