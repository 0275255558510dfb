// Kernels of attention_cpu.cc, compiled for each instruction set: see utils/compute/cpu/foreach_isa.h.

#include "utils/compute/cpu/tile_multiply-inl.h"

// The columns that count in at least one row of [row, row_end).
Span KeptOf(const Band& band, int64_t row, int64_t row_end, int64_t size) {
  switch (band.keep) {
    case Band::kUpToDiagonal:
      return {0, std::clamp<int64_t>(row_end + band.offset, 0, size)};
    case Band::kFromDiagonal:
      return {std::clamp<int64_t>(row + band.offset, 0, size), size};
    default:
      return {0, size};
  }
}

void Multiply(const Product& p) {
  constexpr int kPrefetch = 8;
  constexpr int64_t kPanel = kMaxTileVecs * kLanes;
  const int64_t tiles = (p.rows + kMaxTileRows - 1) / kMaxTileRows;
  for (int64_t column = 0; column < p.columns; column += kPanel) {
    const int vecs = static_cast<int>(std::min(kPanel, p.columns - column) / kLanes);
    for (int64_t tile = 0; tile < tiles; ++tile) {
      const int64_t row = p.rows * tile / tiles, row_end = p.rows * (tile + 1) / tiles;
      const Span columns = KeptOf(p.columns_kept, row, row_end, p.columns);
      if (column >= columns.end || column + kPanel <= columns.begin) continue;
      const Span depth = KeptOf(p.depth_kept, row, row_end, p.depth);
      const int64_t block = depth.begin / kBlock, block_end = (depth.end + kBlock - 1) / kBlock;
      const int64_t blocks = std::max<int64_t>(0, block_end - block);
      const void* const* const prefetch = p.prefetch == nullptr ? nullptr : p.prefetch->Take(blocks * kPrefetch);
      const int rows = static_cast<int>(row_end - row);
      (prefetch == nullptr ? FindTile<kBlock, kBlock>(rows, vecs) : FindTile<kBlock, kBlock, kPrefetch>(rows, vecs))({
          .a = p.a + (block * p.a_rows + row) * kBlock,
          .w = p.w + block * kBlock * p.w_stride + column,
          .w_stride = p.w_stride,
          .out = p.out + row * p.out_stride + column,
          .blocks = blocks,
          .block_stride = p.a_rows * kBlock,
          .height = 1,
          .y_stride = 0,
          .width = 1,
          .x_stride = 0,
          .out_stride = p.out_stride,
          .accumulate = p.accumulate,
          .prefetch = prefetch,
      });
    }
  }
}

// Sets out[c][r] = in[r][c] for a block of 16 rows and columns.
void TransposeBlock(const float* in, int64_t in_stride, float* out, int64_t out_stride) {
  for (int r = 0; r < kBlock; r += kLanes) {
    for (int c = 0; c < kBlock; c += kLanes) {
      Vec v[kLanes];
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) v[i] = Load(in + (r + i) * in_stride + c);
      Transpose(v);
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) Store(out + (c + i) * out_stride + r, v[i]);
    }
  }
}

constexpr AttentionKernels kAttentionKernels = {&Multiply, &TransposeBlock};
