// Kernels of conv_pool_cpu.cc, compiled for each instruction set: see utils/compute/cpu/foreach_isa.h.

#include "utils/compute/cpu/tile_multiply-inl.h"

// Computes 2x2 max pooling with bias and ReLU of two rows of the convolution, [width][columns] each.
void PoolRows(const float* row0, const float* row1, int64_t width, int columns, const float* bias, float* output,
              uint8_t* codes, int64_t out_channels) {
  for (int64_t x = 0; x < width / 2; ++x) {
    for (int c = 0; c < columns; c += kLanes) {
      const float* top = row0 + 2 * x * columns + c;
      const float* bottom = row1 + 2 * x * columns + c;
      const Vec b = Load(bias + c);
      // Values are compared after the bias is added, as TensorFlow does: the sum may round two values to one.
      const Vec pixel[4] = {Add(Load(top), b), Add(Load(top + columns), b), Add(Load(bottom), b),
                            Add(Load(bottom + columns), b)};
      Vec best = pixel[0];
      IntVec code = BroadcastInt(0);
#pragma GCC unroll 3
      for (int i = 1; i < 4; ++i) {
        const Mask greater = Greater(pixel[i], best);
        best = Select(greater, pixel[i], best);
        code = Select(greater, BroadcastInt(i), code);
      }
      // Max(best, 0) would turn NaN into 0 and hide a diverged run; written this way NaN passes through.
      const Mask cut = Greater(Zero(), best);
      const Mask alive = Greater(best, Zero());
      Store(output + x * out_channels + c, Select(cut, Zero(), best));
      StoreBytes(codes + x * out_channels + c, Select(alive, code, BroadcastInt(kDeadWindow)));
    }
  }
}

// Computes one image. `padded` holds its input, [in_channels / kBlock][height + kh - 1][width + kw - 1][kBlock];
// `packed_filter` is [out_channels / columns][in_channels / kBlock][kh][kw][kBlock][columns]; `rows` has room for 2 *
// width * columns floats.
void ForwardImage(const ConvPoolGeometry& g, const float* padded, const float* packed_filter, const float* bias,
                  int columns, float* rows, float* output, uint8_t* codes) {
  const int64_t block = g.in_channels == 1 ? 1 : 16;
  const int64_t padded_width = g.padded_width();
  const int64_t padded_height = g.padded_height();
  const int vecs = columns / kLanes;
  const int64_t tiles = (g.width + kMaxTileRows - 1) / kMaxTileRows;
  // Tiles are of nearly equal widths: `narrow` or one more.
  const int narrow = static_cast<int>(g.width / tiles), wide = std::min(narrow + 1, kMaxTileRows);
  const auto find_tile = [&](int pixels) {
    if (block == 16) return FindTile<16, 16>(pixels, vecs);
    return g.kernel == 5 ? FindTile<5, 1>(pixels, vecs) : FindTile<3, 1>(pixels, vecs);
  };
  const TileFunction narrow_tile = find_tile(narrow), wide_tile = find_tile(wide);
  for (int64_t oc = 0; oc < g.out_channels; oc += columns) {
    const float* w = packed_filter + oc * g.in_channels * g.taps();
    for (int64_t y = 0; y < g.height; ++y) {
      float* row = rows + (y & 1) * g.width * columns;
      for (int64_t tile = 0; tile < tiles; ++tile) {
        const int64_t x0 = g.width * tile / tiles, x1 = g.width * (tile + 1) / tiles;
        const TileArgs args = {.a = padded + (y * padded_width + x0) * block,
                               .w = w,
                               .w_stride = columns,
                               .out = row + x0 * columns,
                               .blocks = g.in_channels / block,
                               .block_stride = padded_height * padded_width * block,
                               .height = g.kernel,
                               .y_stride = padded_width * block,
                               .width = block == 1 ? 1 : g.kernel,
                               .x_stride = block,
                               .out_stride = columns,
                               .accumulate = false};
        (x1 - x0 == narrow ? narrow_tile : wide_tile)(args);
      }
      if (y & 1) {
        const int64_t offset = (y / 2) * g.pooled_width() * g.out_channels + oc;
        PoolRows(rows, rows + g.width * columns, g.width, columns, bias + oc, output + offset, codes + offset,
                 g.out_channels);
      }
    }
  }
}

// Sorts one image's gradients by channel and drops those that are zero: counts[oc] of them at grads + oc * windows.
// Adds them to d_bias.
void GatherGrads(const ConvPoolGeometry& g, const uint8_t* codes, const float* d_output, SparseGrad* grads,
                 int32_t* counts, float* d_bias) {
  const int64_t windows = g.pooled_height() * g.pooled_width();
  const int row = static_cast<int>((g.padded_width()) * 16);
  const int pixel_offset[4] = {0, 16, row, row + 16};
  for (int64_t oc = 0; oc < g.out_channels; oc += kLanes) {
    int32_t ends[kLanes];  // ends of each channel's list, in grads
    for (int l = 0; l < kLanes; ++l) ends[l] = static_cast<int32_t>((oc + l) * windows);
    Vec sum = Zero();
#if OFFICIAL_ISA_AVX512
    __m512i end = _mm512_loadu_si512(ends);
    const __m512i offsets = _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(pixel_offset)));
#endif
    for (int64_t i = 0; i < windows; ++i) {
      const int window_offset = static_cast<int>(i / g.pooled_width() * 2 * row + i % g.pooled_width() * 32);
      const uint8_t* code = codes + i * g.out_channels + oc;
      const float* value = d_output + i * g.out_channels + oc;
      const IntVec lane_codes = LoadBytes(code);
      const Mask alive = LessInt(lane_codes, BroadcastInt(kDeadWindow));
      sum = Add(sum, KeepIf(alive, Load(value)));
#if OFFICIAL_ISA_AVX512
      const __m512i offset =
          _mm512_add_epi32(_mm512_permutexvar_epi32(lane_codes, offsets), _mm512_set1_epi32(window_offset));
      const __m512i low = _mm512_unpacklo_epi32(offset, _mm512_castps_si512(_mm512_loadu_ps(value)));
      const __m512i high = _mm512_unpackhi_epi32(offset, _mm512_castps_si512(_mm512_loadu_ps(value)));
      // The unpacking works within quarters: `low` holds lanes 0 1 4 5 8 9 12 13, `high` the others.
      const __m512i low_lanes = _mm512_setr_epi32(0, 1, 4, 5, 8, 9, 12, 13, 0, 0, 0, 0, 0, 0, 0, 0);
      const __m512i high_lanes = _mm512_setr_epi32(2, 3, 6, 7, 10, 11, 14, 15, 0, 0, 0, 0, 0, 0, 0, 0);
      // Dead ones are stored too, and overwritten by the next: cheaper than a mask.
      _mm512_i32scatter_epi64(grads, _mm512_castsi512_si256(_mm512_permutexvar_epi32(low_lanes, end)), low, 8);
      _mm512_i32scatter_epi64(grads, _mm512_castsi512_si256(_mm512_permutexvar_epi32(high_lanes, end)), high, 8);
      end = _mm512_mask_add_epi32(end, alive, end, _mm512_set1_epi32(1));
#else
      for (int l = 0; l < kLanes; ++l) {
        if (code[l] != kDeadWindow) grads[ends[l]++] = {window_offset + pixel_offset[code[l]], value[l]};
      }
#endif
    }
#if OFFICIAL_ISA_AVX512
    _mm512_storeu_si512(ends, end);
#endif
    for (int l = 0; l < kLanes; ++l) counts[oc + l] = ends[l] - static_cast<int32_t>((oc + l) * windows);
    Store(d_bias + oc, Add(Load(d_bias + oc), sum));
  }
}

// Computes the weight gradient for kHeight rows of the kernel and one block of 16 input channels, d_filter
// [kHeight][kWidth][16], from one image and one output channel: adds the sum of gradient * patch over all of `grads`,
// which is accumulated in registers. An image's sum has the same bits whichever images are summed before it, so that
// training on several devices stays close to training on one.
template <int kHeight, int kWidth>
void AddPatches(const SparseGrad* grads, int64_t count, const float* padded, int64_t y_stride, float* d_filter) {
  for (int lane = 0; lane < 16; lane += kLanes) {
    Vec sum[kHeight][kWidth];
#pragma GCC unroll 8
    for (int y = 0; y < kHeight; ++y) {
#pragma GCC unroll 8
      for (int x = 0; x < kWidth; ++x) sum[y][x] = Zero();
    }
    for (int64_t i = 0; i < count; ++i) {
      const float* patch = padded + grads[i].offset + lane;
      const Vec grad = Broadcast(grads[i].value);
#pragma GCC unroll 8
      for (int y = 0; y < kHeight; ++y, patch += y_stride) {
#pragma GCC unroll 8
        for (int x = 0; x < kWidth; ++x) sum[y][x] = Fma(grad, Load(patch + x * 16), sum[y][x]);
      }
    }
#pragma GCC unroll 8
    for (int y = 0; y < kHeight; ++y) {
#pragma GCC unroll 8
      for (int x = 0; x < kWidth; ++x) {
        float* d = d_filter + (y * kWidth + x) * 16 + lane;
        Store(d, Add(Load(d), sum[y][x]));
      }
    }
  }
}

// Calls AddPatches on as many kernel rows at a time as the registers hold.
template <int kHeight, int kWidth>
void AddAllPatches(const SparseGrad* grads, int64_t count, const float* padded, int64_t y_stride, float* d_filter) {
  constexpr int kRows = std::min(kHeight, (kRegisters - 4) / kWidth);
  constexpr int kRest = kHeight % kRows, kDone = kHeight - kRest;
#pragma GCC unroll 8
  for (int y = 0; y < kDone; y += kRows) {
    AddPatches<kRows, kWidth>(grads, count, padded + y * y_stride, y_stride, d_filter + y * kWidth * 16);
  }
  if constexpr (kRest != 0) {
    AddPatches<kRest, kWidth>(grads, count, padded + kDone * y_stride, y_stride, d_filter + kDone * kWidth * 16);
  }
}

// Adds one image's weight gradient to d_filter [in_channels / 16][out_channels][kh][kw][16]. `padded` is its input as
// in ForwardImage with kBlock = 16. `grads` has its gradients by output channel, counts[oc] of them at grads + oc *
// windows.
void BackwardFilter(const ConvPoolGeometry& g, const float* padded, const SparseGrad* grads, const int32_t* counts,
                    float* d_filter) {
  const int64_t windows = g.pooled_height() * g.pooled_width();
  const int64_t y_stride = (g.padded_width()) * 16;
  const int64_t block_stride = (g.padded_height()) * y_stride;
  const int64_t size = g.taps() * 16;
  const auto add = g.kernel == 5 ? &AddAllPatches<5, 5> : &AddAllPatches<3, 3>;
  for (int64_t block = 0; block < g.in_channels / 16; ++block) {
    for (int64_t oc = 0; oc < g.out_channels; ++oc, d_filter += size) {
      add(grads + oc * windows, counts[oc], padded + block * block_stride, y_stride, d_filter);
    }
  }
}

// Sorts one image's gradients by pixel of the convolution's output and drops those that are zero. The offsets and
// values of row y start at y * row_capacity, pixel after pixel, those of x from starts[x] to starts[x + 1] where starts
// = p.starts + y * (width + 1).
void GatherPixels(const ConvPoolGeometry& g, const uint8_t* codes, const float* d_output, const PixelGrads& p) {
  const int32_t channel_stride = static_cast<int32_t>(g.kernel * 16);
#if OFFICIAL_ISA_AVX512
  const __m512i first_offsets = _mm512_mullo_epi32(
      _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15), _mm512_set1_epi32(channel_stride));
#endif
  for (int64_t y = 0; y < g.height; ++y) {
    int32_t* starts = p.starts + y * (g.width + 1);
    int32_t end = static_cast<int32_t>(y * p.row_capacity);
    for (int64_t x = 0; x < g.width; ++x) {
      starts[x] = end;
      const int64_t window = (y / 2 * g.pooled_width() + x / 2) * g.out_channels;
      const int wanted = static_cast<int>(y % 2 * 2 + x % 2);
#if OFFICIAL_ISA_AVX512
      for (int64_t oc = 0; oc < g.out_channels; oc += 16) {
        const Mask here = _mm512_cmpeq_epi32_mask(LoadBytes(codes + window + oc), _mm512_set1_epi32(wanted));
        const __m512i offsets =
            _mm512_add_epi32(first_offsets, _mm512_set1_epi32(static_cast<int>(oc) * channel_stride));
        _mm512_storeu_si512(p.offsets + end, _mm512_maskz_compress_epi32(here, offsets));
        _mm512_storeu_ps(p.values + end, _mm512_maskz_compress_ps(here, _mm512_loadu_ps(d_output + window + oc)));
        end += _mm_popcnt_u32(here);
      }
#else
      for (int64_t oc = 0; oc < g.out_channels; ++oc) {
        p.offsets[end] = static_cast<int32_t>(oc) * channel_stride;
        p.values[end] = d_output[window + oc];
        end += codes[window + oc] == wanted;  // else the next one overwrites it: no branch to mispredict
      }
#endif
    }
    starts[g.width] = end;
  }
}

// The largest number of pixels of a row whose input gradient fits in the registers.
constexpr int kMaxRowPixels = OFFICIAL_ISA_AVX512 ? 16 : 8;

// Adds to `row`, a row of the padded input gradient, the contribution of kPixels pixels of the output gradient's row
// and one row of the kernel, `filter` [out_channels][kWidth][16]. The row stays in registers; the filter is small
// enough for the L1 cache. (With the filter in registers and the gradient in the cache, every multiplication would need
// a store.)
template <int kPixels, int kWidth>
void AddFilterRow(const PixelGrads& p, const int32_t* starts, const float* filter, float* row) {
  constexpr int kSums = kPixels + kWidth - 1;
  for (int lane = 0; lane < 16; lane += kLanes) {
    Vec sum[kSums];
#pragma GCC unroll 32
    for (int x = 0; x < kSums; ++x) sum[x] = Load(row + x * 16 + lane);
#pragma GCC unroll 16
    for (int x = 0; x < kPixels; ++x) {
      for (int32_t i = starts[x]; i < starts[x + 1]; ++i) {
        const Vec grad = Broadcast(p.values[i]);
        const float* w = filter + p.offsets[i] + lane;
#pragma GCC unroll 8
        for (int k = 0; k < kWidth; ++k) sum[x + k] = Fma(grad, Load(w + k * 16), sum[x + k]);
      }
    }
#pragma GCC unroll 32
    for (int x = 0; x < kSums; ++x) Store(row + x * 16 + lane, sum[x]);
  }
}

using FilterRowFunction = void (*)(const PixelGrads&, const int32_t* starts, const float* filter, float* row);

template <int kWidth, int kPixels = 1>
FilterRowFunction FindFilterRow(int pixels) {
  if (pixels == kPixels) return &AddFilterRow<kPixels, kWidth>;
  if constexpr (kPixels < kMaxRowPixels) return FindFilterRow<kWidth, kPixels + 1>(pixels);
  return nullptr;
}

// Adds one image's input gradient to d_padded, which has the layout of ForwardImage with kBlock = 16 (only inside the
// border). `filter` is [in_channels / 16][kh][out_channels][kw][16].
void BackwardInput(const ConvPoolGeometry& g, const PixelGrads& p, const float* filter, float* d_padded) {
  const int64_t padded_width = g.padded_width(), padded_height = g.padded_height();
  const int64_t top = g.kernel / 2;
  const int64_t segments = (g.width + kMaxRowPixels - 1) / kMaxRowPixels;
  const int narrow = static_cast<int>(g.width / segments), wide = std::min(narrow + 1, kMaxRowPixels);
  const FilterRowFunction narrow_row = g.kernel == 5 ? FindFilterRow<5>(narrow) : FindFilterRow<3>(narrow);
  const FilterRowFunction wide_row = g.kernel == 5 ? FindFilterRow<5>(wide) : FindFilterRow<3>(wide);
  for (int64_t block = 0; block < g.in_channels / 16; ++block) {
    for (int64_t ky = 0; ky < g.kernel; ++ky, filter += g.out_channels * g.kernel * 16) {
      for (int64_t y = 0; y < g.height; ++y) {
        if (y + ky < top || y + ky >= top + g.height) continue;  // it falls into the border
        float* row = d_padded + (block * padded_height + y + ky) * padded_width * 16;
        for (int64_t segment = 0; segment < segments; ++segment) {
          const int64_t x0 = g.width * segment / segments, x1 = g.width * (segment + 1) / segments;
          (x1 - x0 == narrow ? narrow_row : wide_row)(p, p.starts + y * (g.width + 1) + x0, filter, row + x0 * 16);
        }
      }
    }
  }
}

// Lane l gets row0[x] (code 0), row0[x + 1] (1), row1[x] (2) or row1[x + 1] (3) where code = codes[l] and x = 0 .. 6.
#if OFFICIAL_ISA_AVX512
struct WindowLookup {
  IntVec index;
  OFFICIAL_VEC_INLINE explicit WindowLookup(IntVec codes)
      : index(_mm512_add_epi32(_mm512_and_epi32(codes, _mm512_set1_epi32(1)),
                               _mm512_slli_epi32(_mm512_and_epi32(codes, _mm512_set1_epi32(2)), 2))) {}
  OFFICIAL_VEC_INLINE void NextX() { index = _mm512_add_epi32(index, _mm512_set1_epi32(1)); }
};
struct WindowRows {
  Vec table;  // 8 floats of each row
  OFFICIAL_VEC_INLINE WindowRows(const float* row0, const float* row1)
      : table(_mm512_insertf32x8(_mm512_castps256_ps512(_mm256_loadu_ps(row0)), _mm256_loadu_ps(row1), 1)) {}
  OFFICIAL_VEC_INLINE Vec At(const WindowLookup& l) const { return _mm512_permutexvar_ps(l.index, table); }
};
#else
struct WindowLookup {
  IntVec index;
  Vec lower;  // sign bit set: the lane reads row1
  OFFICIAL_VEC_INLINE explicit WindowLookup(IntVec codes)
      : index(_mm256_and_si256(codes, _mm256_set1_epi32(1))),
        lower(_mm256_castsi256_ps(_mm256_slli_epi32(codes, 30))) {}
  OFFICIAL_VEC_INLINE void NextX() { index = _mm256_add_epi32(index, _mm256_set1_epi32(1)); }
};
struct WindowRows {
  Vec row0, row1;
  OFFICIAL_VEC_INLINE WindowRows(const float* p0, const float* p1)
      : row0(_mm256_loadu_ps(p0)), row1(_mm256_loadu_ps(p1)) {}
  OFFICIAL_VEC_INLINE Vec At(const WindowLookup& l) const {
    return _mm256_blendv_ps(_mm256_permutevar8x32_ps(row0, l.index), _mm256_permutevar8x32_ps(row1, l.index), l.lower);
  }
};
#endif

// Adds the weight and bias gradient of one image with one input channel to d_filter [kh * kw][out_channels] and d_bias
// [out_channels]. Lanes are output channels, each of which looks up its own pixel of the window. `padded` must be
// readable for 8 floats from any pixel.
template <int kHeight, int kWidth>
void AddSingleChannelPatches(const ConvPoolGeometry& g, const float* padded, const uint8_t* codes,
                             const float* d_output, float* d_filter, float* d_bias) {
  constexpr int kRows = std::min(kHeight, (kRegisters - 6) / kWidth);
  const int64_t stride = g.padded_width();
  for (int64_t oc = 0; oc < g.out_channels; oc += kLanes) {
    for (int y0 = 0; y0 < kHeight; y0 += kRows) {
      Vec sum[kRows][kWidth];
#pragma GCC unroll 8
      for (int y = 0; y < kRows; ++y) {
#pragma GCC unroll 8
        for (int x = 0; x < kWidth; ++x) sum[y][x] = Zero();
      }
      Vec bias_sum = Zero();
      for (int64_t py = 0; py < g.pooled_height(); ++py) {
        for (int64_t px = 0; px < g.pooled_width(); ++px) {
          const int64_t i = (py * g.pooled_width() + px) * g.out_channels + oc;
          const IntVec code = LoadBytes(codes + i);
          const Vec grad = KeepIf(LessInt(code, BroadcastInt(kDeadWindow)), Load(d_output + i));
          bias_sum = Add(bias_sum, grad);
          const float* patch = padded + (2 * py + y0) * stride + 2 * px;
#pragma GCC unroll 8
          for (int y = 0; y < kRows; ++y, patch += stride) {
            if (y0 + y >= kHeight) break;
            const WindowRows rows(patch, patch + stride);
            WindowLookup lookup(code);
#pragma GCC unroll 8
            for (int x = 0; x < kWidth; ++x, lookup.NextX()) sum[y][x] = Fma(grad, rows.At(lookup), sum[y][x]);
          }
        }
      }
#pragma GCC unroll 8
      for (int y = 0; y < kRows; ++y) {
        if (y0 + y >= kHeight) break;
#pragma GCC unroll 8
        for (int x = 0; x < kWidth; ++x) {
          float* d = d_filter + ((y0 + y) * kWidth + x) * g.out_channels + oc;
          Store(d, Add(Load(d), sum[y][x]));
        }
      }
      if (y0 == 0) Store(d_bias + oc, Add(Load(d_bias + oc), bias_sum));
    }
  }
}

void BackwardFilterSingleChannel(const ConvPoolGeometry& g, const float* padded, const uint8_t* codes,
                                 const float* d_output, float* d_filter, float* d_bias) {
  (g.kernel == 5 ? &AddSingleChannelPatches<5, 5> : &AddSingleChannelPatches<3, 3>)(g, padded, codes, d_output,
                                                                                    d_filter, d_bias);
}

constexpr ConvPoolKernels kConvPoolKernels = {
    .max_columns = kMaxTileVecs * kLanes,
    .forward_image = &ForwardImage,
    .pool_rows = &PoolRows,
    .gather_grads = &GatherGrads,
    .backward_filter = &BackwardFilter,
    .backward_filter_single_channel = &BackwardFilterSingleChannel,
    .gather_pixels = &GatherPixels,
    .backward_input = &BackwardInput,
};
