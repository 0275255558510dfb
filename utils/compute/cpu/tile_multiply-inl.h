// The inner loop of convolutions and matrix products, compiled for each instruction set; see foreach_isa.h.
//
// A tile is kRows rows (pixels of a convolution, examples of a dense layer) times kVecs vectors of output columns, held
// in registers for the whole reduction:
//   out[r][col] = sum over b, y, x, c of  a[b * block_stride + y * y_stride + x * x_stride + r * kRowStride + c] *
//   w[...][c][col]
// so `a` keeps kBlock consecutive inputs of a row together and rows kRowStride apart: distances the compiler knows,
// which makes every broadcast a load with a constant offset. Convolutions and dense layers keep 16 channels of a pixel
// or example together (kBlock = kRowStride = 16); with one channel the pixels under a row of the kernel are together
// (kBlock = kernel width, kRowStride = 1). `w` is [blocks][height][width][kBlock] rows w_stride apart.

#include "utils/compute/cpu/vec-inl.h"

struct TileArgs {
  const float* a;
  const float* w;
  int64_t w_stride;      // floats
  float* out;            // [kRows] rows, out_stride apart, of kVecs * kLanes floats
  int64_t blocks;        // outer reduction: blocks of input channels
  int64_t block_stride;  // floats, in `a`
  int64_t height, y_stride;
  int64_t width, x_stride;
  int64_t out_stride;
  bool accumulate;  // adds to `out` instead of overwriting it
  // Addresses that will be needed soon, kPrefetch of which are fetched at each step of x: spread over the arithmetic,
  // because a core has only about a dozen buffers for cache lines in flight.
  const void* const* prefetch = nullptr;
};

// With two vectors of columns a row uses each broadcast twice; the rows fill the registers except for those two and the
// broadcast.
constexpr int kMaxTileRows = OFFICIAL_ISA_AVX512 ? 14 : 6;
constexpr int kMaxTileVecs = 2;

template <int kRows, int kVecs, int kBlock, int kRowStride, int kPrefetch>
void TileMultiply(const TileArgs& t) {
  Vec sum[kRows][kVecs];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < kVecs; ++v) sum[r][v] = t.accumulate ? Load(t.out + r * t.out_stride + v * kLanes) : Zero();
  }
  const float* w = t.w;
  const int64_t w_stride = t.w_stride;
  const void* const* prefetch = t.prefetch;
  for (int64_t b = 0; b < t.blocks; ++b) {
    for (int64_t y = 0; y < t.height; ++y) {
      const float* a = t.a + b * t.block_stride + y * t.y_stride;
      for (int64_t x = 0; x < t.width; ++x, a += t.x_stride) {
#pragma GCC unroll 8
        for (int i = 0; i < kPrefetch; ++i) _mm_prefetch(static_cast<const char*>(*prefetch++), _MM_HINT_T1);
#pragma GCC unroll 8
        for (int c = 0; c < kBlock; ++c, w += w_stride) {
          const float* ac = a + c;
          // Without this the compiler keeps inputs that steps share (kRowStride < kBlock) in registers, and spills the
          // sums.
          if constexpr (kRowStride < kBlock) asm("" : "+r"(ac));
          Vec wv[kVecs];
#pragma GCC unroll 2
          for (int v = 0; v < kVecs; ++v) wv[v] = Load(w + v * kLanes);
#pragma GCC unroll 16
          for (int r = 0; r < kRows; ++r) {
            const Vec av = Broadcast(ac[r * kRowStride]);
#pragma GCC unroll 2
            for (int v = 0; v < kVecs; ++v) sum[r][v] = Fma(av, wv[v], sum[r][v]);
          }
        }
      }
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < kVecs; ++v) Store(t.out + r * t.out_stride + v * kLanes, sum[r][v]);
  }
}

using TileFunction = void (*)(const TileArgs&);

// The instance for `rows` (1 .. kMaxTileRows) rows and `vecs` (1 .. kMaxTileVecs) vectors.
template <int kBlock, int kRowStride, int kPrefetch = 0, int kRows = 1>
TileFunction FindTile(int rows, int vecs) {
  if (rows == kRows) {
    return vecs == 1 ? &TileMultiply<kRows, 1, kBlock, kRowStride, kPrefetch>
                     : &TileMultiply<kRows, 2, kBlock, kRowStride, kPrefetch>;
  }
  if constexpr (kRows < kMaxTileRows) return FindTile<kBlock, kRowStride, kPrefetch, kRows + 1>(rows, vecs);
  return nullptr;
}

// Writes the `rows` rows of a tile next to each other at each of `count` steps of a sum: from + i * stride to
// to + i * kMaxTileRows.
inline void PackRows(const float* from, int64_t stride, int rows, int64_t count, float* to) {
  if (rows == kMaxTileRows) {  // a number that the compiler knows
    for (int64_t i = 0; i < count; ++i) {
      std::memcpy(to + i * kMaxTileRows, from + i * stride, kMaxTileRows * sizeof(float));
    }
  } else {
    for (int64_t i = 0; i < count; ++i) std::copy_n(from + i * stride, rows, to + i * kMaxTileRows);
  }
}
