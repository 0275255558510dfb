// Kernels of neural_factorization_cpu.cc, compiled for each instruction set: see utils/compute/cpu/foreach_isa.h.

#include "utils/compute/cpu/vec-inl.h"

// With two vectors of columns a row uses each broadcast twice; the sums of the rows fill the registers except for those
// two and the broadcast.
constexpr int kMaxVecs = 2;
constexpr int kMaxRows = kRegisters / kMaxVecs - 2;
constexpr int kMaxRowsOfOne = kRegisters / kMaxVecs;  // with one vector of columns; rows divide a tile

// The layout of matrices in memory, and the product that their elements are for.
template <Product kWhat>
struct Layout {
  static constexpr Product kProduct = kWhat;
  static constexpr bool kPairs = HasPairs(kWhat);
  static constexpr int kPerWord = kPairs ? 2 : 1;
  static constexpr int kBlockWords = kBlock / kPerWord;

  static constexpr int64_t kRowBlock = RowBlock(kWhat);

  // The place of a number in Operand::rows.
  static constexpr int64_t At(int64_t row, int64_t column) {
    return column / kRowBlock * kTile * kRowBlock + row * kRowBlock + column % kRowBlock;
  }
  // The same in panels of `height` rows of floats.
  static constexpr int64_t PanelAt(int64_t row, int64_t column, int64_t height) {
    return column / kBlock * height * kBlock + row * kBlock + column % kBlock;
  }
  // The same in Operand::steps and a layer's panels, in words of a float's size.
  static constexpr int64_t StepAt(int64_t row, int64_t column, int64_t height = kTile) {
    return PanelAt(row / kPerWord, column, height / kPerWord);
  }
  static OFFICIAL_VEC_INLINE Vec AddProduct(Vec a, Vec b, Vec c) {
#if OFFICIAL_ISA_BF16
    if constexpr (kPairs) return DotPairs(a, b, c);
#endif
    return Fma(a, b, c);
  }
};
using Floats = Layout<Product::kFloat>;

// Prefetches some of the lines that the next tile needs: spread over the arithmetic, because a core has only a few
// dozen buffers for cache lines in flight.
OFFICIAL_VEC_INLINE void FetchSome(LinesAhead& lines, int some = 6) {
  const int end = std::min(lines.next + some, lines.count);
  for (; lines.next < end; ++lines.next) _mm_prefetch(lines.line[lines.next], _MM_HINT_T1);
}

// The rows of a tile that are computed. Rows after the samples start as zero, and the gradient of their scores is zero.
template <typename L>
OFFICIAL_VEC_INLINE int64_t RowsOf(const Samples& s) {
  return Padded(s.count, L::kRowBlock);
}

// Loads the first n floats of a vector, n >= 1; all for a large n.
OFFICIAL_VEC_INLINE Vec LoadPart(const float* p, int64_t n) {
  return n >= kLanes ? Load(p) : LoadFirst(p, static_cast<int>(n));
}
// Stores x; with `stream` past the caches, which needs rows of whole vectors.
OFFICIAL_VEC_INLINE void StoreRow(float* p, Vec x, int64_t n, bool stream) {
  if (stream) {
    Stream(p, x);
  } else if (n >= kLanes) {
    Store(p, x);
  } else {
    StoreFirst(p, x, static_cast<int>(n));
  }
}

// ---- Products ----

// Adds to sum[r][v] the products of a[block * a_stride + r * kRowStride + step * kStepStride] and vector v of the next
// of the rows at w, which are kBlock floats apart; the vectors of a row are w_stride apart.
template <typename L, int kSteps, int kRowStride, int kStepStride, int kRows, int kVecs>
OFFICIAL_VEC_INLINE void AddProducts(const float* a, int64_t a_stride, const float* w, int64_t w_stride, int64_t blocks,
                                     Vec (&sum)[kRows][kVecs]) {
  for (int64_t b = 0; b < blocks; ++b, a += a_stride) {
#pragma GCC unroll 4
    for (int step = 0; step < kSteps; ++step, w += kBlock) {
      Vec wv[kVecs];
#pragma GCC unroll 2
      for (int v = 0; v < kVecs; ++v) wv[v] = Load(w + v * w_stride);
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        const Vec av = Broadcast(a[r * kRowStride + step * kStepStride]);
#pragma GCC unroll 2
        for (int v = 0; v < kVecs; ++v) sum[r][v] = L::AddProduct(av, wv[v], sum[r][v]);
      }
    }
  }
}

// Writes kLanes columns of two rows of a matrix, the first of which is even, as Operand::steps.
template <typename L>
OFFICIAL_VEC_INLINE void PutSteps(Vec x, Vec next, int64_t r, int64_t c, int64_t height, float* steps) {
  float* const at = steps + L::StepAt(r, c, height);
#if OFFICIAL_ISA_BF16
  if constexpr (L::kPairs) {
    Store(at, Pairs(x, next));
    return;
  }
#endif
  constexpr bool kRounded = L::kProduct == Product::kRounded;
  Store(at, kRounded ? RoundToBFloat16(x) : x);
  Store(at + kBlock, kRounded ? RoundToBFloat16(next) : next);
}
// Writes kLanes columns of two rows of a tile, in the forms in which all products take them.
template <typename L>
OFFICIAL_VEC_INLINE void Put(Vec x, Vec next, int64_t r, int64_t c, const Operand& to) {
#if OFFICIAL_ISA_BF16
  if constexpr (L::kPairs) {
    uint16_t* const row = reinterpret_cast<uint16_t*>(to.rows) + L::At(r, c);
    StoreBFloat16(row, x);
    StoreBFloat16(row + L::kRowBlock, next);
  }
#endif
  PutSteps<L>(x, next, r, c, kTile, to.steps);
}

// Keeps x where kLanes columns of a row are greater than zero.
template <typename L>
OFFICIAL_VEC_INLINE Vec KeepIfPositive(const Operand& of, int64_t r, int64_t c, Vec x) {
  const int64_t at = L::At(r, c);
#if OFFICIAL_ISA_BF16
  if constexpr (L::kPairs) return KeepIf(PositiveBFloat16(reinterpret_cast<const uint16_t*>(of.rows) + at), x);
#endif
  return KeepIf(Greater(Load(of.rows + at), Zero()), x);
}

// ReLU; NaN stays NaN.
OFFICIAL_VEC_INLINE Vec Rectified(Vec x) { return Select(Greater(Zero(), x), Zero(), x); }

// Handlers of the sums of products: Start returns their initial value, operator() stores two rows of a vector of
// columns, and Total takes the sum of what operator() returned.
template <typename L>
struct PutRelu {
  const float* bias;
  Operand to;
  OFFICIAL_VEC_INLINE Vec Start(int64_t c) const { return Load(bias + c); }
  OFFICIAL_VEC_INLINE Vec operator()(Vec x, Vec next, int64_t r, int64_t c) const {
    Put<L>(Rectified(x), Rectified(next), r, c, to);
    return Zero();
  }
  OFFICIAL_VEC_INLINE void Total(Vec, int64_t) const {}
};
// The gradient of PutRelu's input.
template <typename L>
struct PutReluGradient {
  Operand output, to;
  float* of_bias;
  OFFICIAL_VEC_INLINE Vec Start(int64_t) const { return Zero(); }
  OFFICIAL_VEC_INLINE Vec operator()(Vec x, Vec next, int64_t r, int64_t c) const {
    x = KeepIfPositive<L>(output, r, c, x);
    next = KeepIfPositive<L>(output, r + 1, c, next);
    Put<L>(x, next, r, c, to);
    return Add(x, next);
  }
  OFFICIAL_VEC_INLINE void Total(Vec sum, int64_t c) const { Store(of_bias + c, Add(Load(of_bias + c), sum)); }
};
// The gradient of the gathered rows, stored as rows of the samples.
struct PutRows {
  float *user, *item;  // rows of the first sample
  int64_t half, padded_half, count;
  bool stream;
  OFFICIAL_VEC_INLINE Vec Start(int64_t) const { return Zero(); }
  OFFICIAL_VEC_INLINE Vec operator()(Vec x, Vec next, int64_t r, int64_t c) const {
    const int64_t column = c < padded_half ? c : c - padded_half, n = half - column;
    float* const row = (c < padded_half ? user : item) + r * half + column;
    if (r < count && n > 0) StoreRow(row, x, n, stream);
    if (r + 1 < count && n > 0) StoreRow(row + half, next, n, stream);
    return Zero();
  }
  OFFICIAL_VEC_INLINE void Total(Vec, int64_t) const {}
};

struct Factors {
  const float* rows;  // rows of samples, laid out as Operand::rows
  int64_t depth;
  const float* panels;
};

// Multiplies kRows rows from `row` on, which is even, and kVecs vectors of columns from `column` on.
template <typename L, typename Finish, int kRows, int kVecs>
void MultiplyTile(const Factors& f, int64_t row, int64_t column, const Finish& finish) {
  Vec sum[kRows][kVecs];
#pragma GCC unroll 2
  for (int v = 0; v < kVecs; ++v) {
    const Vec start = finish.Start(column + v * kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) sum[r][v] = start;
  }
  const int64_t panel = L::StepAt(0, column, f.depth), next_panel = L::StepAt(0, column + kLanes, f.depth);
  AddProducts<L, L::kBlockWords, L::kBlockWords, 1>(f.rows + row * L::kBlockWords, kTile * L::kBlockWords,
                                                    f.panels + panel, next_panel - panel, f.depth / kBlock, sum);
#pragma GCC unroll 2
  for (int v = 0; v < kVecs; ++v) {
    Vec total = Zero();
#pragma GCC unroll 8
    for (int r = 0; r < kRows; r += 2) {
      total = Add(total, finish(sum[r][v], sum[r + 1][v], row + r, column + v * kLanes));
    }
    finish.Total(total, column + v * kLanes);
  }
}

template <typename Finish>
using TileFunction = void (*)(const Factors&, int64_t row, int64_t column, const Finish&);
// The functions for 2, 4, ... rows.
template <typename L, typename Finish, int kVecs, size_t... kPair>
constexpr std::array<TileFunction<Finish>, sizeof...(kPair)> TilesByRows(std::index_sequence<kPair...>) {
  return {&MultiplyTile<L, Finish, 2 * kPair + 2, kVecs>...};
}
template <typename L, typename Finish>
constexpr auto kTiles = TilesByRows<L, Finish, kMaxVecs>(std::make_index_sequence<kMaxRows / 2>());
template <typename L, typename Finish>
constexpr auto kTilesOfOne = TilesByRows<L, Finish, 1>(std::make_index_sequence<kMaxRowsOfOne / 2>());

#if OFFICIAL_ISA_BF16
// ---- Products in AMX's tiles ----

// Multiply and AddWeightGradient of Product::kTiles, below, with two blocks of rows and two of columns at a time.
constexpr int kSomeBesideTiles = 12;  // lines to fetch beside products of four blocks

template <typename Finish>
void MultiplyInTiles(const Factors& f, int64_t columns, int64_t samples, LinesAhead& lines, const Finish& finish) {
  using L = Layout<Product::kTiles>;
  alignas(64) float start[2][kBlock], sums[2][2][kTileRows][kTileColumns];
  for (int64_t c = 0; c < columns; c += 2 * kBlock) {
    Vec totals[2] = {Zero(), Zero()};
    for (int v = 0; v < 2; ++v) Store(start[v], finish.Start(c + v * kBlock));
    const float *const panel = f.panels + L::StepAt(0, c, f.depth), *const next = panel + L::StepAt(0, kBlock, f.depth);
    for (int64_t row = 0; row < samples; row += 2 * kTileRows) {
      const uint16_t* const rows = reinterpret_cast<const uint16_t*>(f.rows);
      LoadTile<0>(start[0], 0);
      LoadTile<1>(start[1], 0);
      LoadTile<2>(start[0], 0);
      LoadTile<3>(start[1], 0);
      for (int64_t d = 0; d < f.depth; d += kTileDepth) {
        const int64_t step = L::StepAt(d, 0, f.depth);
        MultiplyBlocks(rows + L::At(row, d), rows + L::At(row + kTileRows, d), panel + step, next + step);
      }
      StoreSums({&sums[0][0][0][0], kTileRows * kTileColumns, 2 * kTileRows * kTileColumns});
      for (int64_t i = 0; i < 2; ++i) {
        for (int64_t v = 0; v < 2; ++v) {
#pragma GCC unroll 8
          for (int64_t r = 0; r < kTileRows; r += 2) {
            const Vec x = Load(sums[i][v][r]), below = Load(sums[i][v][r + 1]);
            totals[v] = Add(totals[v], finish(x, below, row + i * kTileRows + r, c + v * kBlock));
          }
        }
      }
      FetchSome(lines, kSomeBesideTiles);
    }
    for (int v = 0; v < 2; ++v) finish.Total(totals[v], c + v * kBlock);
  }
}

void AddWeightGradientInTiles(const Operand& in, int64_t depth, const Operand& dy, int64_t columns, int64_t samples,
                              bool accumulate, LinesAhead& lines, float* panels) {
  using L = Layout<Product::kTiles>;
  // The columns of `in` that are multiplied now, two blocks of 16, as rows [16][samples].
  alignas(64) float transposed[2][kTile / kTileDepth][kTileRows][kBlock];
  for (int64_t d = 0; d < depth; d += 2 * kTileRows) {
    for (int64_t i = 0; i < 2; ++i) {
      for (int64_t s = 0; s < samples; s += kTileDepth) {
        const float* const steps = in.steps + L::StepAt(s, d + i * kTileRows);
        Vec v[kLanes];
#pragma GCC unroll 16
        for (int r = 0; r < kLanes; ++r) v[r] = Load(steps + r * kBlock);
        Transpose(v);
#pragma GCC unroll 16
        for (int r = 0; r < kLanes; ++r) Store(transposed[i][s / kTileDepth][r], v[r]);
      }
    }
    for (int64_t c = 0; c < columns; c += 2 * kBlock) {
      const BlockSums sums = {panels + L::PanelAt(d, c, depth), L::PanelAt(0, kBlock, depth),
                              L::PanelAt(kTileRows, 0, depth)};
      if (accumulate) {
        LoadSums(sums);
      } else {
        ClearSums();
      }
      for (int64_t s = 0; s < samples; s += kTileDepth) {
        const int64_t at = s / kTileDepth;
        MultiplyBlocks(transposed[0][at], transposed[1][at], dy.steps + L::StepAt(s, c),
                       dy.steps + L::StepAt(s, c + kBlock));
      }
      StoreSums(sums);
      FetchSome(lines, kSomeBesideTiles);
    }
  }
}
#endif

// Multiplies rows [samples, depth] by panels [depth, columns]; all sizes are multiples of the row block.
template <typename L, typename Finish>
void Multiply(const Factors& f, int64_t columns, int64_t samples, LinesAhead& lines, const Finish& finish) {
#if OFFICIAL_ISA_BF16
  if constexpr (L::kProduct == Product::kTiles) {
    MultiplyInTiles(f, columns, samples, lines, finish);
    return;
  }
#endif
  for (int64_t c = 0; c < columns; c += kMaxVecs * kLanes) {
    const bool one = columns - c <= kLanes;
    const int64_t most = one ? kMaxRowsOfOne : kMaxRows, tiles = (samples + most - 1) / most;
    const TileFunction<Finish>* const functions = one ? kTilesOfOne<L, Finish>.data() : kTiles<L, Finish>.data();
    for (int64_t t = 0; t < tiles; ++t) {
      const int64_t pair = samples / 2 * t / tiles, pairs = samples / 2 * (t + 1) / tiles - pair;
      functions[pairs - 1](f, 2 * pair, c, finish);
      FetchSome(lines);
    }
  }
}

// Computes kRows rows and kVecs vectors of columns, to_stride apart, of a gradient (+)= in^T * dy.
template <typename L, int kRows, int kVecs>
void AddGradientTile(const float* in, const float* dy, int64_t samples, bool accumulate, float* to, int64_t to_stride) {
  constexpr int kSteps = 4;
  Vec sum[kRows][kVecs];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < kVecs; ++v) sum[r][v] = accumulate ? Load(to + r * kBlock + v * to_stride) : Zero();
  }
  AddProducts<L, kSteps, 1, kBlock>(in, kSteps * kBlock, dy, L::StepAt(0, kLanes), samples / L::kPerWord / kSteps, sum);
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < kVecs; ++v) Store(to + r * kBlock + v * to_stride, sum[r][v]);
  }
}

// Computes panels [depth, columns] (+)= in [samples, depth]^T * dy [samples, columns].
template <typename L>
void AddWeightGradient(const Operand& in, int64_t depth, const Operand& dy, int64_t columns, int64_t samples,
                       bool accumulate, LinesAhead& lines, float* panels) {
#if OFFICIAL_ISA_BF16
  if constexpr (L::kProduct == Product::kTiles) {
    AddWeightGradientInTiles(in, depth, dy, columns, samples, accumulate, lines, panels);
    return;
  }
#endif
  constexpr int kRows = kRegisters / 4;  // it divides the block
  const int64_t stride = L::PanelAt(0, kLanes, depth);
  for (int64_t c = 0; c < columns; c += kMaxVecs * kLanes) {
    const float* const w = dy.steps + L::StepAt(0, c);
    for (int64_t d = 0; d < depth; d += kBlock) {
      const float* const a = in.steps + L::StepAt(0, d);
      float* const to = panels + L::PanelAt(d, c, depth);
      if (columns - c <= kLanes) {
        AddGradientTile<L, kBlock, 1>(a, w, samples, accumulate, to, stride);
      } else {
        for (int64_t r = 0; r < kBlock; r += kRows) {
          AddGradientTile<L, kRows, kMaxVecs>(a + r, w, samples, accumulate, to + r * kBlock, stride);
        }
      }
      FetchSome(lines);
    }
  }
}

// ---- Rows of tables ----

// The number of rows that are read at a time, for each vector of columns: all of a row lies in one page of memory.
constexpr int64_t kGroup = 8;

// Copies rows `ids` of a table to `out`, and makes the others zero up to `rows`.
void CopyIn(const float* table, int64_t width, const int32_t* ids, const Samples& s, int64_t rows, float* out) {
  for (int64_t first = 0; first < s.count; first += kGroup) {
    const int64_t end = std::min(first + kGroup, s.count);
    for (int64_t c = 0; c < width; c += kLanes) {
      float* const to = out + Floats::At(0, c);
      for (int64_t r = first; r < end; ++r) Store(to + r * kBlock, LoadPart(table + ids[r] * width + c, width - c));
    }
  }
  for (int64_t c = 0; c < width; c += kLanes) {
    for (int64_t r = s.count; r < rows; ++r) Store(out + Floats::At(r, c), Zero());
  }
}

// ---- The network ----

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

// Computes the scores of a tile; what the backward pass needs stays in `t`.
template <typename L>
void Forward(const Network& net, const Samples& s, TileMemory& t) {
  const int64_t rows = RowsOf<L>(s);
  CopyIn(net.mlp_user, net.half, s.users, s, rows, t.gathered);
  CopyIn(net.mlp_item, net.half, s.items, s, rows, t.gathered + Floats::At(0, net.padded_half));
  for (int64_t r = 0; r < s.count; ++r) {  // the scores need these rows
    Fetch(net.gmf_user + s.users[r] * net.factors, net.factors);
    Fetch(net.gmf_item + s.items[r] * net.factors, net.factors);
  }
  if (net.num_layers > 0 && L::kProduct != Product::kFloat) {
    for (int64_t c = 0; c < net.layers[0].in; c += kLanes) {
      for (int64_t r = 0; r < rows; r += 2) {
        const float* const from = t.gathered + Floats::At(r, c);
        Put<L>(Load(from), Load(from + kBlock), r, c, t.inputs[0]);
      }
    }
  }
  for (int k = 0; k < net.num_layers; ++k) {
    const PackedLayer& layer = net.layers[k];
    const Factors f = {t.inputs[k].rows, layer.in, layer.weights};
    if (k + 1 == net.num_layers) {
      Multiply<L>(f, layer.out, rows, t.lines, PutRelu<Floats>{layer.bias, {t.last, t.last}});
    } else {
      Multiply<L>(f, layer.out, rows, t.lines, PutRelu<L>{layer.bias, t.inputs[k + 1]});
    }
  }
  const float *const gmf_user = net.gmf_user, *const gmf_item = net.gmf_item, *const rating = net.rating;
  const float* const last = t.last;
  const int64_t factors = net.factors, gmf_width = net.gmf_width, mlp_width = net.mlp_width;
  for (int64_t begin = 0; begin < rows; begin += kLanes) {
    Vec sums[kLanes];
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const int64_t r = begin + lane, i = std::min(r, s.count - 1), user = s.users[i], item = s.items[i];
      Vec sum = Zero();
      for (int64_t c = 0; c < factors; c += kLanes) {
        const Vec x = LoadPart(gmf_user + user * factors + c, factors - c);
        const Vec y = LoadPart(gmf_item + item * factors + c, factors - c);
        sum = Fma(Mul(x, y), Load(rating + c), sum);
      }
      for (int64_t c = 0; c < mlp_width; c += kLanes) {
        sum = Fma(Load(last + Floats::At(r, c)), Load(rating + gmf_width + c), sum);
      }
      sums[lane] = sum;
    }
    Store(t.scores + begin, Add(SumEach(sums), Broadcast(net.rating_bias)));
  }
}

// Replaces scores by the gradients of the loss with respect to them, zero after the samples up to `rows`, and returns
// the sum of the losses.
float LossAndGradient(const Network& net, const Samples& s, int64_t rows, float* __restrict scores,
                      float* __restrict losses) {
  const float shift = net.shift, limit = net.limit, weight = net.weight;
  const float* __restrict labels = s.labels;
  for (int64_t r = 0; r < s.count; ++r) {
    const float shifted = scores[r] - shift;
    const float z = std::min(std::max(shifted, -limit), limit), y = labels[r];
    const float e = math::Exp()(-std::abs(z)), inverse = 1 / (1 + e);
    const float p = z >= 0 ? inverse : e * inverse;
    losses[r] = std::max(z, 0.0f) - y * z + math::Log()(1 + e);
    scores[r] = z == shifted ? (p - y) * weight : 0;
  }
  for (int64_t r = s.count; r < rows; ++r) losses[r] = scores[r] = 0;
  Vec sum = Zero();
  for (int64_t r = 0; r < s.count; r += kLanes) sum = Add(sum, Load(losses + r));
  return SumOf(sum);
}

PutRows RowsOfUnit(const Network& net, const Samples& s, const UnitGradients& g) {
  return {
      g.mlp_user + s.first * net.half, g.mlp_item + s.first * net.half, net.half, net.padded_half, s.count, g.stream};
}

// Computes the gradients of the last layer and of its input from those of the scores.
template <typename L>
void BackwardOfRating(const Network& net, const Samples& s, TileMemory& t, const UnitGradients& g) {
  const int64_t rows = RowsOf<L>(s);
  Vec of_scores = Zero();
  for (int64_t r = 0; r < rows; r += kLanes) of_scores = Add(of_scores, Load(t.scores + r));
  *g.rating_bias += SumOf(of_scores);
  const float* const scores = t.scores;
  const int64_t factors = net.factors;
  const bool stream = g.stream;
  for (int64_t first = 0; first < s.count; first += kGroup) {
    const int64_t end = std::min(first + kGroup, s.count);
    for (int64_t c = 0; c < factors; c += kLanes) {
      const int64_t n = factors - c;
      const float *const users = net.gmf_user + c, *const items = net.gmf_item + c;
      float* const of_users = g.gmf_user + s.first * factors + c;
      float* const of_items = g.gmf_item + s.first * factors + c;
      const Vec kernel = Load(net.rating + c);
      Vec of_kernel = Load(g.rating + c);
      for (int64_t r = first; r < end; ++r) {
        const Vec user = LoadPart(users + s.users[r] * factors, n), item = LoadPart(items + s.items[r] * factors, n);
        const Vec d = Broadcast(scores[r]), of_product = Mul(d, kernel);
        of_kernel = Fma(d, Mul(user, item), of_kernel);
        StoreRow(of_users + r * factors, Mul(of_product, item), n, stream);
        StoreRow(of_items + r * factors, Mul(of_product, user), n, stream);
      }
      Store(g.rating + c, of_kernel);
    }
  }
  const int last = net.num_layers - 1;
  for (int64_t c = 0; c < net.mlp_width; c += kLanes) {
    float* const kernel_gradient = g.rating + net.gmf_width + c;
    const Vec kernel = Load(net.rating + net.gmf_width + c);
    Vec of_kernel = Load(kernel_gradient), of_bias = Zero();
    for (int64_t r = 0; r < rows; r += 2) {
      float* const at = t.last + Floats::At(r, c);
      const Vec d = Broadcast(scores[r]), next_d = Broadcast(scores[r + 1]);
      const Vec x = Load(at), next_x = Load(at + kBlock);
      of_kernel = Add(of_kernel, Fma(d, x, Mul(next_d, next_x)));
      Vec of_x = Mul(d, kernel), of_next = Mul(next_d, kernel);
      if (last < 0) {
        RowsOfUnit(net, s, g)(of_x, of_next, r, c);
      } else {
        of_x = KeepIf(Greater(x, Zero()), of_x);
        of_next = KeepIf(Greater(next_x, Zero()), of_next);
        of_bias = Add(of_bias, Add(of_x, of_next));
        Put<L>(of_x, of_next, r, c, t.of_outputs[0]);
      }
    }
    Store(kernel_gradient, of_kernel);
    if (last >= 0) Store(g.biases[last] + c, Add(Load(g.biases[last] + c), of_bias));
  }
}

template <typename L>
void Backward(const Network& net, const Samples& s, TileMemory& t, const UnitGradients& g) {
  const int64_t rows = RowsOf<L>(s);
  BackwardOfRating<L>(net, s, t, g);
  Operand dy = t.of_outputs[0], dx = t.of_outputs[1];
  for (int k = net.num_layers; k-- > 0; std::swap(dx, dy)) {
    const PackedLayer& layer = net.layers[k];
    AddWeightGradient<L>(t.inputs[k], layer.in, dy, layer.out, rows, g.accumulate, t.lines, g.weights[k]);
    const Factors f = {dy.rows, layer.out, layer.transposed};
    if (k == 0) {
      Multiply<L>(f, layer.in, rows, t.lines, RowsOfUnit(net, s, g));
    } else {
      Multiply<L>(f, layer.in, rows, t.lines, PutReluGradient<L>{t.inputs[k], dx, g.biases[k - 1]});
    }
  }
  if (g.stream) _mm_sfence();
}

template <typename L>
float Train(const Network& net, const Samples& s, TileMemory& t, const UnitGradients& g) {
#if OFFICIAL_ISA_BF16
  [[maybe_unused]] const std::conditional_t<L::kProduct == Product::kTiles, Tiles, int> tiles = {};
#endif
  Forward<L>(net, s, t);
  const float loss = LossAndGradient(net, s, RowsOf<L>(s), t.scores, t.losses);
  Backward<L>(net, s, t, g);
  return loss;
}

// Packs a kernel [in, out] as rows of the layer from `first` on, with their padding.
template <typename L>
void Pack(const float* kernel, int64_t in, int64_t out, int64_t first, const PackedLayer& layer) {
  for (int64_t i = 0; i < Padded(in, L::kRowBlock); i += kLanes) {
    for (int64_t o = 0; o < layer.out; o += kLanes) {
      Vec v[kLanes];
      for (int r = 0; r < kLanes; ++r) {
        v[r] = i + r < in && o < out ? LoadPart(kernel + (i + r) * out + o, out - o) : Zero();
      }
      for (int r = 0; r < kLanes; r += 2) PutSteps<L>(v[r], v[r + 1], first + i + r, o, layer.in, layer.weights);
      Transpose(v);
      for (int r = 0; r < kLanes; r += 2) PutSteps<L>(v[r], v[r + 1], o + r, first + i, layer.out, layer.transposed);
    }
  }
}

template <Product kProduct>
constexpr Kernels kKernels = {&Train<Layout<kProduct>>, &Pack<Layout<kProduct>>};
