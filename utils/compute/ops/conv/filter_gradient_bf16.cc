#include "utils/compute/ops/conv/filter_gradient_bf16.h"

#include <immintrin.h>

#include <algorithm>

#include "utils/compute/core/bfloat16.h"
#include "utils/compute/cpu/onednn.h"
#include "utils/compute/cpu/parallel.h"
#include "utils/compute/cpu/scratch.h"
#include "utils/compute/ops/conv/conv.h"

namespace official::compute {
namespace {

// One product of matrices. A row is an input channel under a place of the window, a column an output channel; the sum
// is over the output's pixels, two at a time, as VDPBF16PS multiplies. Both matrices are packed for it: blocks of 16
// channels, in each of which a pair of pixels is 16 words of two numbers. Blocks of rows come first, then of columns.
struct PairProduct {
  int64_t images, in_channels, out_channels;
  WindowAxis height, width;

  int64_t in_blocks() const { return in_channels / 16; }
  int64_t row_blocks() const { return height.window * width.window * in_blocks(); }
  int64_t out_blocks() const { return out_channels / 16; }
  int64_t blocks() const { return row_blocks() + out_blocks(); }
  // Of 32 columns, the last of which may have 16.
  int64_t panels() const { return (out_blocks() + 1) / 2; }
  int64_t PanelWidth(int64_t panel) const { return std::min<int64_t>(out_channels - panel * 32, 32); }
  int64_t pixels() const { return images * height.output * width.output; }

  // Pixels that are multiplied together: a panel's pairs stay in the first-level cache.
  static constexpr int64_t kPixels = 384;
  // Words of a block of so many.
  static constexpr int64_t kBlockWords = kPixels / 2 * 16;
  int64_t parts() const { return (pixels() + kPixels - 1) / kPixels; }
  // Parts that are packed before they are multiplied; all threads work on them together.
  int64_t group() const {
    constexpr int64_t kPackedBytes = 1 << 20;
    return std::clamp<int64_t>(kPackedBytes / (blocks() * kBlockWords * 4), 1, parts());
  }
  // Where the sums of 16 rows and a panel begin, a tile [16][PanelWidth].
  int64_t TileOffset(int64_t panel, int64_t row_block) const {
    return 16 * (32 * panel * row_blocks() + PanelWidth(panel) * row_block);
  }
};

#pragma GCC push_options
#pragma GCC target("avx512f,avx512vl,avx512bw,avx512dq,avx512cd,avx512bf16")
namespace avx512 {

// to[pair] = the 16 numbers at each of two offsets, in turn; zeros for an offset below 0.
void PackPairs(const BFloat16* from, const int64_t* offsets, int64_t pairs, uint32_t* to) {
  alignas(64) static constexpr uint16_t kInTurn[] = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                                     8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  const __m512i in_turn = _mm512_load_si512(kInTurn);
  const auto load = [=](int64_t offset) __attribute__((always_inline)) {
    return offset < 0 ? _mm256_setzero_si256() : _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + offset));
  };
  for (int64_t pair = 0; pair < pairs; ++pair) {
    const int64_t first = offsets[2 * pair], second = offsets[2 * pair + 1];
    const __m512i both = second == first + 16
                             ? _mm512_loadu_si512(from + first)
                             : _mm512_inserti64x4(_mm512_castsi256_si512(load(first)), load(second), 1);
    _mm512_store_si512(to + pair * 16, _mm512_permutexvar_epi16(in_turn, both));
  }
}

// Adds the product of kRows rows of a block and kVecs blocks of columns, over so many pairs, to sums [kRows][16 kVecs],
// or writes it there. Meanwhile it fetches a line at each pair from `ahead` on, unless that is nullptr: spread over the
// arithmetic, since a core has only about a dozen buffers for lines on their way.
template <int kRows, int kVecs>
void MultiplyPairs(const uint32_t* rows, const uint32_t* columns, int64_t pairs, bool add, float* sums,
                   const BFloat16* ahead) {
  __m512 sum[kRows][kVecs];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < kVecs; ++v) sum[r][v] = _mm512_setzero_ps();
  }
  const int64_t step = ahead == nullptr ? 0 : 32;
  if (ahead == nullptr) ahead = reinterpret_cast<const BFloat16*>(rows);
  for (int64_t pair = 0; pair < pairs; ++pair, rows += 16, columns += 16, ahead += step) {
    _mm_prefetch(reinterpret_cast<const char*>(ahead), _MM_HINT_T1);
    __m512bh column[kVecs];
#pragma GCC unroll 2
    for (int v = 0; v < kVecs; ++v) column[v] = (__m512bh)_mm512_load_si512(columns + v * PairProduct::kBlockWords);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const auto row = (__m512bh)_mm512_set1_epi32(static_cast<int>(rows[r]));
#pragma GCC unroll 2
      for (int v = 0; v < kVecs; ++v) sum[r][v] = _mm512_dpbf16_ps(sum[r][v], row, column[v]);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < kVecs; ++v) {
      float* const to = sums + (r * kVecs + v) * 16;
      _mm512_store_ps(to, add ? _mm512_add_ps(_mm512_load_ps(to), sum[r][v]) : sum[r][v]);
    }
  }
}

// Rounds [rows][columns] numbers, the latter a multiple of 16, into rows that lie `stride` apart.
void StoreRounded(const float* from, int64_t rows, int64_t columns, int64_t stride, BFloat16* to) {
  for (int64_t row = 0; row < rows; ++row, to += stride) {
    for (int64_t column = 0; column < columns; column += 16, from += 16) {
      const __m256i rounded = (__m256i)_mm512_cvtneps_pbh(_mm512_load_ps(from));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + column), rounded);
    }
  }
}

}  // namespace avx512
#pragma GCC pop_options

// Offsets of the first channel of pixels [begin, end) of the output, in memory [N, blocks, H', W', 16].
void OutputOffsets(const PairProduct& p, int64_t begin, int64_t end, int64_t* offsets) {
  const int64_t size = p.height.output * p.width.output;
  for (int64_t i = begin; i < end; ++i) *offsets++ = (i / size * size * p.out_blocks() + i % size) * 16;
}

// The same of what lies under a place of their windows in the images; -1 outside.
void ImageOffsets(const PairProduct& p, int64_t place, int64_t begin, int64_t end, int64_t* offsets) {
  const WindowAxis &h = p.height, &w = p.width;
  const int64_t down = place / w.window * h.dilation - h.before, right = place % w.window * w.dilation - w.before;
  int64_t column = begin % w.output, row = begin / w.output % h.output, image = begin / w.output / h.output;
  for (int64_t i = begin; i < end; ++i) {
    const int64_t y = row * h.stride + down, x = column * w.stride + right;
    const bool inside = y >= 0 && y < h.input && x >= 0 && x < w.input;
    *offsets++ = inside ? ((image * p.in_blocks() * h.input + y) * w.input + x) * 16 : -1;
    if (++column < w.output) continue;
    column = 0;
    if (++row < h.output) continue;
    row = 0;
    ++image;
  }
}

// Packs blocks [begin, end) of the parts from `first` on, counted through all parts.
void Pack(const PairProduct& p, const BFloat16* images, const BFloat16* output, int64_t first, int64_t begin,
          int64_t end, uint32_t* packed) {
  int64_t offsets[PairProduct::kPixels];
  for (int64_t i = begin; i < end; ++i) {
    const int64_t block = i % p.blocks(), column_block = block - p.row_blocks(), in_block = block % p.in_blocks();
    const int64_t pixel = (first + i / p.blocks()) * PairProduct::kPixels;
    const int64_t pixels = std::min(PairProduct::kPixels, p.pixels() - pixel);
    if (i == begin || column_block == 0 || (column_block < 0 && in_block == 0)) {
      if (column_block >= 0) {
        OutputOffsets(p, pixel, pixel + pixels, offsets);
      } else {
        ImageOffsets(p, block / p.in_blocks(), pixel, pixel + pixels, offsets);
      }
      if (pixels % 2 == 1) offsets[pixels] = -1;
    }
    const BFloat16* const from = column_block >= 0 ? output + column_block * p.height.output * p.width.output * 16
                                                   : images + in_block * p.height.input * p.width.input * 16;
    avx512::PackPairs(from, offsets, (pixels + 1) / 2, packed + i * PairProduct::kBlockWords);
  }
}

// Where packing block `i`, counted as in Pack, begins to read; nullptr if another block of the part reads there too.
const BFloat16* SourceOf(const PairProduct& p, const BFloat16* images, const BFloat16* output, int64_t first,
                         int64_t i) {
  const int64_t block = i % p.blocks(), column_block = block - p.row_blocks();
  const int64_t pixel = (first + i / p.blocks()) * PairProduct::kPixels;
  int64_t offset;
  if (column_block >= 0) {
    OutputOffsets(p, pixel, pixel + 1, &offset);
    return output + offset + column_block * p.height.output * p.width.output * 16;
  }
  if (block >= p.in_blocks()) return nullptr;
  ImageOffsets(p, 0, pixel, pixel + 1, &offset);
  return images + std::max<int64_t>(offset, 0) + block * p.height.input * p.width.input * 16;
}

// Tiles [begin, end), panel by panel, of the sums over `parts` packed parts, the first of them being `first`. Meanwhile
// it fetches what this thread will pack then.
void Multiply(const PairProduct& p, const BFloat16* images, const BFloat16* output, const uint32_t* packed,
              int64_t first, int64_t parts, int64_t begin, int64_t end, float* sums) {
  const int64_t tiles = p.panels() * p.row_blocks();
  const int64_t next = first + parts, next_blocks = std::min(p.group(), p.parts() - next) * p.blocks();
  const int64_t next_begin = next_blocks * begin / tiles, next_end = next_blocks * end / tiles;
  const int64_t calls = 2 * parts * (end - begin);
  int64_t call = 0;
  const auto ahead = [&]() -> const BFloat16* {
    const int64_t i = next_begin + (next_end - next_begin) * call / calls;
    ++call;
    if (i == next_begin + (next_end - next_begin) * call / calls) return nullptr;
    return SourceOf(p, images, output, next, i);
  };
  for (int64_t part = 0; part < parts; ++part, packed += p.blocks() * PairProduct::kBlockWords) {
    const int64_t pixels = std::min(PairProduct::kPixels, p.pixels() - (first + part) * PairProduct::kPixels);
    const int64_t pairs = (pixels + 1) / 2;
    const bool add = first + part > 0;
    for (int64_t tile = begin; tile < end; ++tile) {
      const int64_t panel = tile / p.row_blocks(), row_block = tile % p.row_blocks();
      const uint32_t* const rows = packed + row_block * PairProduct::kBlockWords;
      const uint32_t* const columns = packed + (p.row_blocks() + 2 * panel) * PairProduct::kBlockWords;
      float* const to = sums + p.TileOffset(panel, row_block);
      const int64_t row_words = 8 * p.PanelWidth(panel);
      if (p.PanelWidth(panel) == 32) {
        avx512::MultiplyPairs<8, 2>(rows, columns, pairs, add, to, ahead());
        avx512::MultiplyPairs<8, 2>(rows + 8, columns, pairs, add, to + row_words, ahead());
      } else {
        avx512::MultiplyPairs<8, 1>(rows, columns, pairs, add, to, ahead());
        avx512::MultiplyPairs<8, 1>(rows + 8, columns, pairs, add, to + row_words, ahead());
      }
    }
  }
}

}  // namespace

bool BFloat16FilterGradientSupports(const ConvGeometry& g) {
  return OnednnComputesIn(DType::kBFloat16) && g.images.shape.dim(3) % 16 == 0 && g.output.shape.dim(3) % 16 == 0;
}

Kernel MakeBFloat16FilterGradient(const KernelSpec& spec) {
  const ConvGeometry g = ConvGeometryOf(spec.node);
  const PairProduct p{g.images.shape.dim(0), g.images.shape.dim(3), g.output.shape.dim(3), g.window.height,
                      g.window.width};
  ScratchPlan scratch;
  const int64_t packed_at = scratch.Add(p.group() * p.blocks() * PairProduct::kBlockWords * sizeof(uint32_t));
  const int64_t sums_at = scratch.Add(p.row_blocks() * 16 * p.out_channels * sizeof(float));
  return {.run =
              [=](const KernelArgs& args) {
                const BFloat16* const images = args.input<BFloat16>(conv2d_backprop_filter::kImages);
                const BFloat16* const dy = args.input<BFloat16>(conv2d_backprop_filter::kDy);
                BFloat16* const d_filters = args.output<BFloat16>(conv2d_backprop_filter::kFilterGradient);
                auto* const packed = static_cast<uint32_t*>(ScratchAt(args, packed_at));
                auto* const sums = static_cast<float*>(ScratchAt(args, sums_at));
                for (int64_t first = 0; first < p.parts(); first += p.group()) {
                  const int64_t parts = std::min(p.group(), p.parts() - first);
                  ParallelFor(parts * p.blocks(), 1,
                              [&](int64_t begin, int64_t end) { Pack(p, images, dy, first, begin, end, packed); });
                  ParallelFor(p.panels() * p.row_blocks(), 1, [&](int64_t begin, int64_t end) {
                    Multiply(p, images, dy, packed, first, parts, begin, end, sums);
                  });
                }
                ParallelFor(p.row_blocks(), 1, [&](int64_t begin, int64_t end) {
                  for (int64_t row_block = begin; row_block < end; ++row_block) {
                    BFloat16* const rows = d_filters + row_block * 16 * p.out_channels;
                    for (int64_t panel = 0; panel < p.panels(); ++panel) {
                      avx512::StoreRounded(sums + p.TileOffset(panel, row_block), 16, p.PanelWidth(panel),
                                           p.out_channels, rows + 32 * panel);
                    }
                  }
                });
                return absl::OkStatus();
              },
          .scratch_bytes = scratch.bytes(),
          .algorithm = "product of patches, AVX-512 BF16"};
}

}  // namespace official::compute
