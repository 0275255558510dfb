// Kernels of dense_cpu.cc, compiled for each instruction set: see utils/compute/cpu/foreach_isa.h.

#include "utils/compute/cpu/tile_multiply-inl.h"

constexpr int kColumns = kMaxTileVecs * kLanes;  // output columns of a tile and of a panel
constexpr int64_t kDepth = 256;    // rows of the reduction at a time: a panel then takes half of the L1 cache
constexpr int kPanelPrefetch = 4;  // lines of the next panel fetched at each step

OFFICIAL_VEC_INLINE Vec LoadAs(const float* p) { return Load(p); }
OFFICIAL_VEC_INLINE Vec LoadAs(const BFloat16* p) { return LoadBFloat16(&p->bits); }

// Copies rows [depth_begin, depth_begin + depth) of the panel's columns next to each other, as floats: in the weights
// they are apart, often by a power of two of bytes, and would evict each other.
template <typename T>
void CopyPanel(const ColumnRange<T>& weights, int64_t depth_begin, int64_t depth, int64_t column, float* panel) {
  const T* from = weights.data + depth_begin * weights.row_stride + column;
  for (int64_t k = 0; k < depth; ++k, from += weights.row_stride) {
    for (int c = 0; c < kColumns; c += kLanes) Store(panel + k * kColumns + c, LoadAs(from + c));
  }
}
template <typename T>
void CopyPanel(const TransposedColumns<T>& weights, int64_t depth_begin, int64_t depth, int64_t column, float* panel) {
  for (int c = 0; c < kColumns; c += kLanes) {
    const T* from[kLanes];
    for (int i = 0; i < kLanes; ++i) from[i] = weights.Column(column + c + i) + depth_begin;
    for (int64_t k = 0; k < depth; k += kLanes) {
      Vec rows[kLanes];
      for (int i = 0; i < kLanes; ++i) rows[i] = LoadAs(from[i] + k);
      Transpose(rows);
      for (int i = 0; i < kLanes; ++i) Store(panel + (k + i) * kColumns + c, rows[i]);
    }
  }
}

// Lists the cache lines that CopyPanel will read, and returns their number.
template <typename T>
int64_t ListPanel(const ColumnRange<T>& weights, int64_t depth_begin, int64_t depth, int64_t column,
                  const void** lines) {
  const T* from = weights.data + depth_begin * weights.row_stride + column;
  int64_t count = 0;
  for (int64_t k = 0; k < depth; ++k, from += weights.row_stride) {
    for (int64_t c = 0; c < kColumns; c += kLine<T>) lines[count++] = from + c;
  }
  return count;
}
template <typename T>
int64_t ListPanel(const TransposedColumns<T>& weights, int64_t depth_begin, int64_t depth, int64_t column,
                  const void** lines) {
  int64_t count = 0;
  for (int64_t c = 0; c < kColumns; ++c) {
    const T* const from = weights.Column(column + c) + depth_begin;
    for (int64_t k = 0; k < depth; k += kLine<T>) lines[count++] = from + k;
  }
  return count;
}

// Multiplies x, packed as [depth / 16][batch][16], by the columns of `weights`, into `sums` [columns /
// kColumns][batch][kColumns]. `panel` has room for kDepth * kColumns floats.
template <typename Columns>
void Multiply(const float* packed_x, int64_t batch, int64_t depth, const Columns& weights, float* panel, float* sums) {
  const void* lines[kDepth * kColumns / 16];
  const int64_t tiles = (batch + kMaxTileRows - 1) / kMaxTileRows;
  for (int64_t k = 0; k < depth; k += kDepth) {
    const int64_t chunk = std::min(kDepth, depth - k);
    for (int64_t column = weights.begin; column < weights.end; column += kColumns) {
      CopyPanel(weights, k, chunk, column, panel);
      // The next panel is prefetched during the arithmetic on this one.
      const bool last = column + kColumns == weights.end;
      const int64_t next_k = last ? k + kDepth : k;
      int64_t listed = 0, fetched = 0;
      if (next_k < depth) {
        listed = ListPanel(weights, next_k, std::min(kDepth, depth - next_k), last ? weights.begin : column + kColumns,
                           lines);
      }
      for (int64_t tile = 0; tile < tiles; ++tile) {
        const int64_t row0 = batch * tile / tiles, row1 = batch * (tile + 1) / tiles;
        const int rows = static_cast<int>(row1 - row0);
        const int64_t fetching = chunk / 16 * kPanelPrefetch;
        const bool prefetch = fetched + fetching <= listed;
        const TileArgs args = {.a = packed_x + k * batch + row0 * 16,
                               .w = panel,
                               .w_stride = kColumns,
                               .out = sums + (column - weights.begin) * batch + row0 * kColumns,
                               .blocks = 1,
                               .block_stride = 0,
                               .height = 1,
                               .y_stride = 0,
                               .width = chunk / 16,
                               .x_stride = batch * 16,
                               .out_stride = kColumns,
                               .accumulate = k > 0,
                               .prefetch = lines + fetched};
        (prefetch ? FindTile<16, 16, kPanelPrefetch>(rows, kMaxTileVecs) : FindTile<16, 16>(rows, kMaxTileVecs))(args);
        if (prefetch) fetched += fetching;
      }
    }
  }
}

// Writes `sums` of Multiply to rows of `output` `stride` apart, with a bias (null: none) and ReLU. With the columns of
// one panel, and their number as stride, the output may be `sums`.
void StoreSums(const float* sums, int64_t batch, int64_t columns, const float* bias, bool relu, float* output,
               int64_t stride) {
  for (int64_t column = 0; column < columns; column += kColumns) {
    for (int64_t r = 0; r < batch; ++r, sums += kColumns) {
      for (int64_t c = 0; c < kColumns; c += kLanes) {
        Vec v = Load(sums + c);
        if (bias) v = Add(v, Load(bias + column + c));
        if (relu) v = Select(Greater(Zero(), v), Zero(), v);  // NaN passes through
        Store(output + r * stride + column + c, v);
      }
    }
  }
}

// parts[0] + ... in the order of TreeSum, for one vector from each part; parts are kMaxTileRows * kColumns floats
// apart.
OFFICIAL_VEC_INLINE Vec AddParts(const float* parts, int num_parts) {
  constexpr int kStride = kMaxTileRows * kColumns;
  if (num_parts == 1) return Load(parts);
  if (num_parts == 2) return Add(Load(parts), Load(parts + kStride));
  return Add(Add(Load(parts), Load(parts + kStride)), Add(Load(parts + 2 * kStride), Load(parts + 3 * kStride)));
}

OFFICIAL_VEC_INLINE void StoreAs(float* p, Vec v) { Store(p, v); }
OFFICIAL_VEC_INLINE void StoreAs(BFloat16* p, Vec v) {
  // The upper halves of what is rounded; the compiler makes vectors of it. NaN of arithmetic is quiet and stays NaN.
  float rounded[kLanes];
  Store(rounded, RoundToBFloat16(v));
  for (int i = 0; i < kLanes; ++i) p[i].bits = static_cast<uint16_t>(std::bit_cast<uint32_t>(rounded[i]) >> 16);
}

// Computes rows [row_begin, row_end) of x^T * dy [in, out], block by block of g.block columns. `x_tile` has room for
// [batch][kMaxTileRows] floats, `packed` for [g.block / kColumns][batch][kColumns], `sums` for
// [num_parts][kMaxTileRows][kColumns].
template <typename T>
void WeightGradient(const DenseGradient<T>& g, int64_t row_begin, int64_t row_end, float* x_tile, float* packed,
                    float* sums) {
  // One part of floats is the output.
  const bool is_direct = std::is_same_v<T, float> && g.num_parts == 1;
  const int64_t tiles = (row_end - row_begin + kMaxTileRows - 1) / kMaxTileRows;
  for (int64_t block = 0; block < g.out; block += g.block) {
    const int64_t block_end = std::min(block + g.block, g.out);
    for (int64_t column = block; column < block_end; column += kColumns) {
      CopyPanel(ColumnRange<float>{g.dy, g.out, block, block_end}, 0, g.batch, column,
                packed + (column - block) * g.batch);
    }
    for (int64_t tile = 0; tile < tiles; ++tile) {
      const int64_t row0 = row_begin + (row_end - row_begin) * tile / tiles;
      const int64_t row1 = row_begin + (row_end - row_begin) * (tile + 1) / tiles;
      const int rows = static_cast<int>(row1 - row0);
      const TileFunction multiply = FindTile<1, 1>(rows, kMaxTileVecs);
      PackRows(g.x + row0, g.in, rows, g.batch, x_tile);
      for (int64_t column = block; column < block_end; column += kColumns) {
        T* const output = g.output + row0 * g.out + column;
        // The lines to be written are prefetched during the arithmetic.
        for (int r = 0; r < rows; ++r) {
          for (int c = 0; c < kColumns; c += kLine<T>) __builtin_prefetch(output + r * g.out + c, /*rw=*/1);
        }
        for (int part = 0; part < g.num_parts; ++part) {
          const Share share = ShareOf(g.batch, part, g.num_parts);
          multiply({.a = x_tile + share.begin * kMaxTileRows,
                    .w = packed + (column - block) * g.batch + share.begin * kColumns,
                    .w_stride = kColumns,
                    .out = is_direct ? reinterpret_cast<float*>(output) : sums + part * kMaxTileRows * kColumns,
                    .blocks = 1,
                    .block_stride = 0,
                    .height = 1,
                    .y_stride = 0,
                    .width = share.size(),
                    .x_stride = kMaxTileRows,
                    .out_stride = is_direct ? g.out : kColumns,
                    .accumulate = false});
        }
        if (is_direct) continue;
        for (int r = 0; r < rows; ++r) {
          for (int c = 0; c < kColumns; c += kLanes) {
            StoreAs(output + r * g.out + c, AddParts(sums + r * kColumns + c, g.num_parts));
          }
        }
      }
    }
  }
}

constexpr DenseKernels kDenseKernels = {
    .columns = kColumns,
    .depth = kDepth,
    .rows = kMaxTileRows,
    .multiply = &Multiply<ColumnRange<float>>,
    .multiply_bfloat16 = &Multiply<ColumnRange<BFloat16>>,
    .multiply_transposed_bfloat16 = &Multiply<TransposedColumns<BFloat16>>,
    .store = &StoreSums,
    .weight_gradient = &WeightGradient<float>,
    .bfloat16_weight_gradient = &WeightGradient<BFloat16>,
};
