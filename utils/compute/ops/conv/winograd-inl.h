// Winograd's algorithm F(4x4, 3x3): the output is made in tiles of 4 x 4 pixels, each from 6 x 6 of the input, with 36
// multiplications per pair of channels instead of 144. With the matrices of Lavin and Gray 2015
//   output    Y  = A^T M A,      M = sum over channels of U * V  (elementwise)
//   filters   U  = G g G^T       input V = B^T d B
// and, transposed, for the gradient of the filters
//   dg = G^T (sum over tiles of V * (A dY A^T)) G.
// The products over channels (or tiles) are, for each of the 36 positions, one of matrices. Images are channel-blocked.
//
// It is compiled for AVX-512, so it has no includes of its own: see foreach_isa.h, and winograd_cpu.cc for the types.

#include "utils/compute/cpu/tile_multiply-inl.h"

OFFICIAL_VEC_INLINE Vec LoadAs(const float* p) { return Load(p); }
OFFICIAL_VEC_INLINE Vec LoadAs(const BFloat16* p) { return LoadBFloat16(&p->bits); }
// Loads zeros where the mask is 0, without touching the memory there.
OFFICIAL_VEC_INLINE Vec LoadAs(Mask mask, const float* p) { return _mm512_maskz_loadu_ps(mask, p); }
OFFICIAL_VEC_INLINE Vec LoadAs(Mask mask, const BFloat16* p) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, p)), 16));
}
OFFICIAL_VEC_INLINE void StoreAs(float* p, Vec v) { Store(p, v); }
// Rounds as BFloat16(float) does.
OFFICIAL_VEC_INLINE void StoreAs(BFloat16* p, Vec v) {
  const __m512i bits = _mm512_castps_si512(v), high = _mm512_srli_epi32(bits, 16);
  const __m512i even = _mm512_and_si512(high, _mm512_set1_epi32(1));
  const __m512i rounded =
      _mm512_srli_epi32(_mm512_add_epi32(bits, _mm512_add_epi32(even, _mm512_set1_epi32(0x7fff))), 16);
  const __m512i quiet_nan = _mm512_or_si512(high, _mm512_set1_epi32(0x40));
  const __m512i result = _mm512_mask_blend_epi32(_mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), rounded, quiet_nan);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(result));
}
OFFICIAL_VEC_INLINE Vec Mul(Vec a, float b) { return _mm512_mul_ps(a, Broadcast(b)); }
// a * b + c for a number b.
OFFICIAL_VEC_INLINE Vec MulAdd(Vec a, float b, Vec c) { return Fma(a, Broadcast(b), c); }

// The matrices, each times a vector (of vectors).
struct InputMatrix {  // B^T
  static constexpr int kFrom = 6, kTo = 6;
  static OFFICIAL_VEC_INLINE void Apply(const Vec* d, Vec* v) {
    const Vec even = MulAdd(d[2], -4, d[4]), odd = MulAdd(d[1], -4, d[3]);
    const Vec even2 = Sub(d[4], d[2]), odd2 = Mul(Sub(d[3], d[1]), 2);
    v[0] = MulAdd(d[0], 4, MulAdd(d[2], -5, d[4]));
    v[1] = Add(even, odd);
    v[2] = Sub(even, odd);
    v[3] = Add(even2, odd2);
    v[4] = Sub(even2, odd2);
    v[5] = MulAdd(d[1], 4, MulAdd(d[3], -5, d[5]));
  }
};
struct OutputMatrix {  // A^T
  static constexpr int kFrom = 6, kTo = 4;
  static OFFICIAL_VEC_INLINE void Apply(const Vec* m, Vec* y) {
    const Vec sum = Add(m[1], m[2]), difference = Sub(m[1], m[2]);
    const Vec sum2 = Add(m[3], m[4]), difference2 = Sub(m[3], m[4]);
    y[0] = Add(Add(m[0], sum), sum2);
    y[1] = MulAdd(difference2, 2, difference);
    y[2] = MulAdd(sum2, 4, sum);
    y[3] = Add(MulAdd(difference2, 8, difference), m[5]);
  }
};
struct OutputGradientMatrix {  // A
  static constexpr int kFrom = 4, kTo = 6;
  static OFFICIAL_VEC_INLINE void Apply(const Vec* y, Vec* m) {
    const Vec even = Add(y[0], y[2]), odd = Add(y[1], y[3]);
    const Vec even2 = MulAdd(y[2], 4, y[0]), odd2 = MulAdd(y[3], 8, Mul(y[1], 2));
    m[0] = y[0];
    m[1] = Add(even, odd);
    m[2] = Sub(even, odd);
    m[3] = Add(even2, odd2);
    m[4] = Sub(even2, odd2);
    m[5] = y[3];
  }
};
struct FilterMatrix {  // G
  static constexpr int kFrom = 3, kTo = 6;
  static OFFICIAL_VEC_INLINE void Apply(const Vec* g, Vec* u) {
    const Vec even = Mul(Add(g[0], g[2]), -1.0f / 6), odd = Mul(g[1], -1.0f / 6);
    const Vec even2 = MulAdd(g[0], 1.0f / 24, Mul(g[2], 1.0f / 6)), odd2 = Mul(g[1], 1.0f / 12);
    u[0] = Mul(g[0], 0.25f);
    u[1] = Add(even, odd);
    u[2] = Sub(even, odd);
    u[3] = Add(even2, odd2);
    u[4] = Sub(even2, odd2);
    u[5] = g[2];
  }
};
struct FilterGradientMatrix {  // G^T
  static constexpr int kFrom = 6, kTo = 3;
  static OFFICIAL_VEC_INLINE void Apply(const Vec* u, Vec* g) {
    const Vec sum = Mul(Add(u[1], u[2]), -1.0f / 6), sum2 = Add(u[3], u[4]);
    g[0] = Add(MulAdd(u[0], 0.25f, sum), Mul(sum2, 1.0f / 24));
    g[1] = MulAdd(Sub(u[2], u[1]), 1.0f / 6, Mul(Sub(u[3], u[4]), 1.0f / 12));
    g[2] = Add(MulAdd(sum2, 1.0f / 6, sum), u[5]);
  }
};

// Multiplies a square of vectors by a matrix from the left, and by its transpose from the right: load(row, column)
// returns an element of the square, store(row, column, vector) stores one of the result.
template <typename Matrix, typename LoadFn, typename StoreFn>
OFFICIAL_VEC_INLINE void TransformSquare(const LoadFn& load, const StoreFn& store) {
  constexpr int kFrom = Matrix::kFrom, kTo = Matrix::kTo;
  Vec half[kTo][kFrom];
#pragma GCC unroll 6
  for (int column = 0; column < kFrom; ++column) {
    Vec from[kFrom], to[kTo];
#pragma GCC unroll 6
    for (int row = 0; row < kFrom; ++row) from[row] = load(row, column);
    Matrix::Apply(from, to);
#pragma GCC unroll 6
    for (int row = 0; row < kTo; ++row) half[row][column] = to[row];
  }
#pragma GCC unroll 6
  for (int row = 0; row < kTo; ++row) {
    Vec to[kTo];
    Matrix::Apply(half[row], to);
#pragma GCC unroll 6
    for (int column = 0; column < kTo; ++column) store(row, column, to[column]);
  }
}

// Transforms rows and columns [0, kSize) of a square at (y, x) of an image of 16 channels, zero outside the image, and
// stores position p at to + p * step.
template <typename Matrix, typename T>
void TransformPixels(const T* image, int64_t height, int64_t width, int64_t y, int64_t x, float* to, int64_t step) {
  constexpr int kSize = Matrix::kFrom;
  const auto store = [=](int row, int column, Vec v) __attribute__((always_inline)) {
    Store(to + (row * 6 + column) * step, v);
  };
  const T* const corner = image + (y * width + x) * 16;  // may lie outside the image
  if (y >= 0 && x >= 0 && y + kSize <= height && x + kSize <= width) {
    TransformSquare<Matrix>(
        [=](int row, int column)
            __attribute__((always_inline)) { return LoadAs(corner + (row * width + column) * 16); },
        store);
    return;
  }
  Mask row_inside[kSize], column_inside[kSize];
  for (int i = 0; i < kSize; ++i) {
    row_inside[i] = y + i >= 0 && y + i < height ? 0xffff : 0;
    column_inside[i] = x + i >= 0 && x + i < width ? 0xffff : 0;
  }
  TransformSquare<Matrix>(
      [=](int row, int column) __attribute__((always_inline)) {
        return LoadAs(row_inside[row] & column_inside[column], corner + (row * width + column) * 16);
      },
      store);
}

// Matrices that a tile multiply reads by columns are kept in panels of 32 columns (the last may have 16), one after the
// other: rows of a wide matrix would be a power of two apart and evict each other from the cache.
OFFICIAL_VEC_INLINE int64_t PanelWidth(int64_t columns, int64_t column) {
  return std::min<int64_t>(columns - column / 32 * 32, 32);
}
OFFICIAL_VEC_INLINE int64_t PanelOffset(int64_t rows, int64_t columns, int64_t row, int64_t column) {
  return column / 32 * 32 * rows + row * PanelWidth(columns, column) + column % 32;
}

// Computes U, [36] matrices [rows][columns] in panels, of filters [3][3][C][O], for its rows [begin, end), multiples of
// 16. In the forward pass the rows are C and the columns O; for the gradient of the images the filters are rotated by
// 180 degrees, and rows and columns are swapped.
template <typename T>
void TransformFilters(const T* filters, int64_t c_size, int64_t o_size, bool turned, int64_t begin, int64_t end,
                      float* u) {
  const int64_t rows = turned ? o_size : c_size, columns = turned ? c_size : o_size;
  // Squares of 16 x 16 keep lines of filters that are read across in the cache for the next row.
  for (int64_t square = begin / 16 * columns; square < end / 16 * columns; square += 16) {
    const int64_t c = square % columns;
    for (int64_t r = square / columns * 16, i = 0; i < 16; ++i, ++r) {
      alignas(64) float g[9][16];
      for (int k = 0; k < 9; ++k) {
        if (turned) {
          const T* const from = filters + ((8 - k) * c_size + c) * o_size + r;
          for (int j = 0; j < 16; ++j) g[k][j] = static_cast<float>(from[j * o_size]);
        } else {
          Store(g[k], LoadAs(filters + (k * c_size + r) * o_size + c));
        }
      }
      float* const to = u + PanelOffset(rows, columns, r, c);
      TransformSquare<FilterMatrix>(
          [&](int row, int column) __attribute__((always_inline)) { return Load(g[3 * row + column]); },
          [=](int row, int column, Vec v)
              __attribute__((always_inline)) { Store(to + (row * 6 + column) * rows * columns, v); });
    }
  }
}

// The place of tile `t` of all tiles of all images.
struct TilePlace {
  int64_t image, y, x;  // y, x: its first pixel in the output
  TilePlace(const WinogradShape& s, int64_t t)
      : image(t / (s.tile_rows() * s.tile_columns())),
        y(t / s.tile_columns() % s.tile_rows() * 4),
        x(t % s.tile_columns() * 4) {}
};

// Computes the outputs of tiles [begin, end) of x, channel-blocked, with transformed filters. `buffer`: see
// WinogradShape::ForwardFloats.
template <typename T>
void Forward(const WinogradShape& s, const T* x, const float* u, int64_t begin, int64_t end, float* buffer, T* y) {
  const int64_t in = s.in_channels, out = s.out_channels, group = s.forward_tiles();
  const int64_t v_step = s.PositionFloats(in, group), m_step = s.PositionFloats(out, group);
  float* const v = buffer;                // [36][in / 16][group][16]
  float* const m = buffer + 36 * v_step;  // [36][group][out]
  for (; begin < end; begin += group) {
    const int64_t n = std::min(group, end - begin);
    for (int64_t t = 0; t < n; ++t) {
      const TilePlace place(s, begin + t);
      for (int64_t c = 0; c < in; c += 16) {
        TransformPixels<InputMatrix>(x + (place.image * in + c) * s.in_height * s.in_width, s.in_height, s.in_width,
                                     place.y - s.before_y, place.x - s.before_x, v + c * group + t * 16, v_step);
      }
    }
    const int64_t multiplies = (n + kMaxTileRows - 1) / kMaxTileRows, rows = (n + multiplies - 1) / multiplies;
    const int last_rows = static_cast<int>(n - (multiplies - 1) * rows);
    for (int64_t position = 0; position < 36; ++position) {
      for (int64_t o = 0; o < out; o += 32) {
        const int64_t width = PanelWidth(out, o);
        const TileFunction multiply = FindTile<16, 16>(static_cast<int>(rows), static_cast<int>(width / 16));
        const TileFunction multiply_last = FindTile<16, 16>(last_rows, static_cast<int>(width / 16));
        TileArgs args = {.a = v + position * v_step,
                         .w = u + position * in * out + o * in,
                         .w_stride = width,
                         .out = m + position * m_step + o,
                         .blocks = in / 16,
                         .block_stride = group * 16,
                         .height = 1,
                         .y_stride = 0,
                         .width = 1,
                         .x_stride = 0,
                         .out_stride = out,
                         .accumulate = false};
        for (int64_t i = 1; i < multiplies; ++i, args.a += rows * 16, args.out += rows * out) multiply(args);
        multiply_last(args);
      }
    }
    for (int64_t t = 0; t < n; ++t) {
      const TilePlace place(s, begin + t);
      const int64_t height = std::min<int64_t>(s.out_height - place.y, 4);
      const int64_t width = std::min<int64_t>(s.out_width - place.x, 4);
      for (int64_t o = 0; o < out; o += 16) {
        const float* const from = m + t * out + o;
        T* const to = y + ((place.image * out + o) * s.out_height + place.y * 16) * s.out_width + place.x * 16;
        TransformSquare<OutputMatrix>(
            [=](int row, int column)
                __attribute__((always_inline)) { return Load(from + (row * 6 + column) * m_step); },
            [=](int row, int column, Vec value) __attribute__((always_inline)) {
              if (row < height && column < width) StoreAs(to + (row * s.out_width + column) * 16, value);
            });
      }
    }
  }
}

// Transforms tiles [begin, end) of the images and of the output's gradient, for the gradient of filters; `first` is the
// first tile of their group. v [36][in / 16][gradient_tiles][16], d [36] matrices [gradient_tiles][out] in panels.
template <typename T>
void TransformBoth(const WinogradShape& s, const T* x, const T* dy, int64_t first, int64_t begin, int64_t end, float* v,
                   float* d) {
  const int64_t in = s.in_channels, out = s.out_channels, group = s.gradient_tiles();
  for (int64_t t = begin; t < end; ++t) {
    const TilePlace place(s, t);
    for (int64_t c = 0; c < in; c += 16) {
      TransformPixels<InputMatrix>(x + (place.image * in + c) * s.in_height * s.in_width, s.in_height, s.in_width,
                                   place.y - s.before_y, place.x - s.before_x, v + c * group + (t - first) * 16,
                                   s.PositionFloats(in, group));
    }
    for (int64_t o = 0; o < out; o += 16) {
      TransformPixels<OutputGradientMatrix>(dy + (place.image * out + o) * s.out_height * s.out_width, s.out_height,
                                            s.out_width, place.y, place.x, d + PanelOffset(group, out, t - first, o),
                                            s.PositionFloats(out, group));
    }
  }
}

// Adds the sums over the first n tiles of v and d to sums [36][in][out], or writes them there, for pairs [begin, end)
// of a position and a panel of output channels.
void SumFilterGradient(const WinogradShape& s, const float* v, const float* d, int64_t n, int64_t begin, int64_t end,
                       bool accumulate, float* sums) {
  constexpr int kRows = 8;  // divides 16
  const int64_t in = s.in_channels, out = s.out_channels, group = s.gradient_tiles();
  for (int64_t pair = begin; pair < end; ++pair) {
    const int64_t position = pair / s.out_panels(), o = pair % s.out_panels() * 32, width = PanelWidth(out, o);
    const TileFunction multiply = FindTile<1, 1>(kRows, static_cast<int>(width / 16));
    for (int64_t c = 0; c < in; c += kRows) {
      multiply({.a = v + position * s.PositionFloats(in, group) + c / 16 * 16 * group + c % 16,
                .w = d + position * s.PositionFloats(out, group) + o * group,
                .w_stride = width,
                .out = sums + (position * in + c) * out + o,
                .blocks = 1,
                .block_stride = 0,
                .height = 1,
                .y_stride = 0,
                .width = n,
                .x_stride = 16,
                .out_stride = out,
                .accumulate = accumulate});
    }
  }
}

// Computes the gradient of filters [3][3][in][out], for input channels [begin, end), from the sums.
template <typename T>
void FinishFilterGradient(const WinogradShape& s, const float* sums, int64_t begin, int64_t end, T* filters) {
  const int64_t in = s.in_channels, out = s.out_channels;
  for (int64_t c = begin; c < end; ++c) {
    for (int64_t o = 0; o < out; o += 16) {
      const float* const from = sums + c * out + o;
      T* const to = filters + c * out + o;
      TransformSquare<FilterGradientMatrix>(
          [=](int row, int column)
              __attribute__((always_inline)) { return Load(from + (row * 6 + column) * in * out); },
          [=](int row, int column, Vec v)
              __attribute__((always_inline)) { StoreAs(to + (row * 3 + column) * in * out, v); });
    }
  }
}
