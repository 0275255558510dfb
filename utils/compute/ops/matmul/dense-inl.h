// Kernels of dense_cpu.cc, compiled for each instruction set: see utils/compute/cpu/foreach_isa.h.

#include "utils/compute/cpu/tile_multiply-inl.h"

constexpr int kColumns = kMaxTileVecs * kLanes;  // output columns of a tile and of a panel
constexpr int64_t kDepth = 256;                  // of the reduction at a time: a panel then takes half of the L1 cache
constexpr int kPanelPrefetch = 4;                // lines of the next panel fetched at each step

// Rows [depth_begin, depth_begin + depth) of the panel's columns, side by side: in the weights they are apart, often by
// a power of two of bytes, and would evict each other.
void CopyPanel(const ColumnRange& weights, int64_t depth_begin, int64_t depth, int64_t column, float* panel) {
  const float* from = weights.data + depth_begin * weights.row_stride + column;
  for (int64_t k = 0; k < depth; ++k, from += weights.row_stride) {
    std::memcpy(panel + k * kColumns, from, kColumns * sizeof(float));
  }
}

// The cache lines that CopyPanel will read.
int64_t ListPanel(const ColumnRange& weights, int64_t depth_begin, int64_t depth, int64_t column, const void** lines) {
  const float* from = weights.data + depth_begin * weights.row_stride + column;
  int64_t count = 0;
  for (int64_t k = 0; k < depth; ++k, from += weights.row_stride) {
    for (int64_t c = 0; c < kColumns; c += 16) lines[count++] = from + c;
  }
  return count;
}

// The product of x, packed as [depth / 16][batch][16], with the columns of `weights`, into `sums` [columns /
// kColumns][batch][kColumns]. `panel` has room for kDepth * kColumns floats.
void Multiply(const float* packed_x, int64_t batch, int64_t depth, const ColumnRange& weights, float* panel,
              float* sums) {
  const void* lines[kDepth * kColumns / 16];
  const int64_t tiles = (batch + kMaxTileRows - 1) / kMaxTileRows;
  for (int64_t k = 0; k < depth; k += kDepth) {
    const int64_t chunk = std::min(kDepth, depth - k);
    for (int64_t column = weights.begin; column < weights.end; column += kColumns) {
      CopyPanel(weights, k, chunk, column, panel);
      // The next panel comes closer during the arithmetic on this one.
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

// Writes `sums` of Multiply to rows of `output` `stride` apart, with a bias (null: none) and ReLU.
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

constexpr DenseKernels kDenseKernels = {
    .columns = kColumns,
    .depth = kDepth,
    .multiply = &Multiply,
    .store = &StoreSums,
};
