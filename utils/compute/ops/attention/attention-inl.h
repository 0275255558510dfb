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

#if OFFICIAL_ISA_AVX512
// The lower two floats of each quarter of x and y, or the upper two.
OFFICIAL_VEC_INLINE Vec LowPairs(Vec x, Vec y) {
  return _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(x), _mm512_castps_pd(y)));
}
OFFICIAL_VEC_INLINE Vec HighPairs(Vec x, Vec y) {
  return _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(x), _mm512_castps_pd(y)));
}
#endif

// Sets out[c][r] = in[r][c] for a block of 16 rows and columns.
void TransposeBlock(const float* in, int64_t in_stride, float* out, int64_t out_stride) {
#if OFFICIAL_ISA_AVX512
  Vec a[16], b[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) a[i] = _mm512_loadu_ps(in + i * in_stride);
    // Transpose within quarters of the vectors: 2x2 blocks, then 4x4 blocks.
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    b[i] = _mm512_unpacklo_ps(a[i], a[i + 1]);
    b[i + 1] = _mm512_unpackhi_ps(a[i], a[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    a[i] = LowPairs(b[i], b[i + 2]);
    a[i + 1] = HighPairs(b[i], b[i + 2]);
    a[i + 2] = LowPairs(b[i + 1], b[i + 3]);
    a[i + 3] = HighPairs(b[i + 1], b[i + 3]);
  }
  // a[4 g + j], quarter k: rows 4 g to 4 g + 3 of column 4 k + j.
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const Vec even01 = _mm512_shuffle_f32x4(a[j], a[4 + j], 0x88), odd01 = _mm512_shuffle_f32x4(a[j], a[4 + j], 0xdd);
    const Vec even23 = _mm512_shuffle_f32x4(a[8 + j], a[12 + j], 0x88);
    const Vec odd23 = _mm512_shuffle_f32x4(a[8 + j], a[12 + j], 0xdd);
    _mm512_storeu_ps(out + j * out_stride, _mm512_shuffle_f32x4(even01, even23, 0x88));
    _mm512_storeu_ps(out + (4 + j) * out_stride, _mm512_shuffle_f32x4(odd01, odd23, 0x88));
    _mm512_storeu_ps(out + (8 + j) * out_stride, _mm512_shuffle_f32x4(even01, even23, 0xdd));
    _mm512_storeu_ps(out + (12 + j) * out_stride, _mm512_shuffle_f32x4(odd01, odd23, 0xdd));
  }
#else
  for (int r = 0; r < kBlock; ++r) {
    for (int c = 0; c < kBlock; ++c) out[c * out_stride + r] = in[r * in_stride + c];
  }
#endif
}

constexpr AttentionKernels kAttentionKernels = {&Multiply, &TransposeBlock};
