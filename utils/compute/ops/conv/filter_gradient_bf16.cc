#include "utils/compute/ops/conv/filter_gradient_bf16.h"

#include <immintrin.h>

#include <algorithm>

#include "utils/compute/core/bfloat16.h"
#include "utils/compute/cpu/amx_tiles.h"
#include "utils/compute/cpu/onednn.h"
#include "utils/compute/cpu/parallel.h"
#include "utils/compute/cpu/scratch.h"
#include "utils/compute/ops/conv/conv.h"

namespace official::compute {
namespace {

// Where pixels and blocks of 16 channels of images are in memory, in numbers.
struct ImageMemory {
  ImageMemory(const Shape& s, Layout layout) : rows(s.dim(1)), columns(s.dim(2)), image(rows * columns * s.dim(3)) {
    const bool blocked = layout == Layout::kChannelBlocked;
    pixel = blocked ? 16 : s.dim(3);
    block = blocked ? rows * columns * 16 : 16;
  }
  int64_t rows, columns;
  int64_t image, pixel, block;  // from one to the next
};

// One product of matrices. A row is an input channel under a place of the window, a column an output channel; the sum
// is over the output's pixels, two at a time, as VDPBF16PS multiplies. Both matrices are packed for it: blocks of 16
// channels, in each of which a pair of pixels is 16 words of two numbers. Blocks of images come first, then of columns.
//
// With AMX's tiles the product is transposed: they take the rows as they are, and of the columns 16 channels times 16
// pairs, which are fewer where a window has several places. Where its stride is 1, these places share what is packed:
// pixels are counted with some after each row of an image, and some rows after each image, that are zero, so that a
// place is a shift of the pixels. Pairs begin at even and, for shifts by an odd number, at odd pixels.
struct PairProduct {
  PairProduct(const ConvGeometry& g, Layout images_layout, Layout dy_layout, bool with_tiles)
      : images(g.images.shape.dim(0)),
        in_channels(g.images.shape.dim(3)),
        out_channels(g.output.shape.dim(3)),
        height(g.window.height),
        width(g.window.width),
        in(g.images.shape, images_layout),
        out(g.output.shape, dy_layout),
        tiles(with_tiles) {
    const auto most_padding = [](const WindowAxis& axis) { return std::max(axis.before, axis.after); };
    shifts = tiles && places() > 1 && height.stride == 1 && width.stride == 1 && Halo(most_padding(width)) <= kMostHalo;
    rows_of_image = shifts ? height.input + most_padding(height) : height.output;
    row_pixels = shifts ? width.input + most_padding(width) : width.output;
    halo = shifts ? Halo(most_padding(width)) : 0;
  }

  int64_t images, in_channels, out_channels;
  WindowAxis height, width;
  ImageMemory in, out;
  bool tiles, shifts;
  int64_t rows_of_image, row_pixels;  // with what is zero
  int64_t halo;                       // pixels before and after those of a part that its shifts need

  int64_t places() const { return height.window * width.window; }
  // The pixel under a place of the window of the first output pixel; below 0 in the padding.
  int64_t Down(int64_t place) const { return height.Position(0, place / width.window); }
  int64_t Right(int64_t place) const { return width.Position(0, place % width.window); }
  int64_t in_blocks() const { return in_channels / 16; }
  int64_t row_blocks() const { return places() * in_blocks(); }
  int64_t out_blocks() const { return out_channels / 16; }
  // Packed blocks of images: with shifts in_blocks() of even pairs, and then of odd ones.
  int64_t image_blocks() const { return shifts ? 2 * in_blocks() : row_blocks(); }
  int64_t blocks() const { return image_blocks() + out_blocks(); }
  // Of 32 columns, the last of which may have 16.
  int64_t panels() const { return (out_blocks() + 1) / 2; }
  int64_t PanelWidth(int64_t panel) const { return std::min<int64_t>(out_channels - panel * 32, 32); }
  int64_t pixels() const { return images * rows_of_image * row_pixels; }

  // Pixels that are multiplied together: a panel's pairs stay in the first-level cache.
  static constexpr int64_t kPixels = 384;
  static constexpr int64_t kMostHalo = kPixels;
  // Words of a block of so many.
  static constexpr int64_t kBlockWords = kPixels / 2 * 16;
  int64_t image_block_words() const { return kBlockWords + halo * 16; }
  int64_t part_words() const { return image_blocks() * image_block_words() + out_blocks() * kBlockWords; }
  // Where a part's packed block is, in words.
  int64_t BlockAt(int64_t block) const {
    const int64_t column_block = std::max<int64_t>(block - image_blocks(), 0);
    return (block - column_block) * image_block_words() + column_block * kBlockWords;
  }
  // The same for its first pair of a block of rows.
  int64_t RowsAt(int64_t row_block) const {
    if (!shifts) return BlockAt(row_block);
    const int64_t place = row_block / in_blocks(), block = row_block % in_blocks();
    const int64_t pixel = halo + Down(place) * row_pixels + Right(place);
    return BlockAt(pixel % 2 * in_blocks() + block) + pixel / 2 * 16;
  }
  int64_t ColumnsAt(int64_t panel) const { return BlockAt(image_blocks() + 2 * panel); }
  int64_t PixelsOf(int64_t part) const { return std::min(kPixels, pixels() - part * kPixels); }
  // Those that a part with `pixels` has when packed: whole pairs, or with tiles whole tiles.
  int64_t PackedPixels(int64_t pixels) const {
    const int64_t multiple = tiles ? kTileDepth : 2;
    return (pixels + multiple - 1) / multiple * multiple;
  }
  int64_t parts() const { return (pixels() + kPixels - 1) / kPixels; }
  // Parts that are packed before they are multiplied; all threads work on them together.
  int64_t group() const {
    constexpr int64_t kPackedBytes = 1 << 20;
    return std::clamp<int64_t>(kPackedBytes / (part_words() * 4), 1, parts());
  }
  // Where the sums of 16 rows and a panel begin, [16][PanelWidth]; with tiles [PanelWidth][16].
  int64_t TileOffset(int64_t panel, int64_t row_block) const {
    return 16 * (32 * panel * row_blocks() + PanelWidth(panel) * row_block);
  }

 private:
  // Even, so that pairs stay pairs.
  int64_t Halo(int64_t padding) const {
    const auto farthest = [](const WindowAxis& axis) {
      return std::max(axis.before, axis.Position(0, axis.window - 1));
    };
    const int64_t most = farthest(height) * (width.input + padding) + farthest(width);
    return (most + 1) / 2 * 2;
  }
};

#pragma GCC push_options
#pragma GCC target("avx512f,avx512vl,avx512bw,avx512dq,avx512cd,avx512bf16")
namespace avx512 {

#define OFFICIAL_ISA_AVX512 1
#define OFFICIAL_ISA_BF16 1
#include "utils/compute/cpu/vec-inl.h"
#undef OFFICIAL_ISA_AVX512
#undef OFFICIAL_ISA_BF16

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

// The same of `blocks` that follow each other in each pixel, which are read once: block b goes to to[b * to_stride].
void PackPixels(const BFloat16* from, const int64_t* offsets, int64_t pairs, int64_t blocks, uint32_t* to,
                int64_t to_stride) {
  const auto load = [=](int64_t offset) __attribute__((always_inline)) {
    return offset < 0 ? _mm512_setzero_si512() : _mm512_loadu_si512(from + offset);
  };
  const __m512i low = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11), high = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
  for (int64_t pair = 0; pair < pairs; ++pair) {
    const int64_t first = offsets[2 * pair], second = offsets[2 * pair + 1];
    uint32_t* at = to + pair * 16;
    for (int64_t b = 0; b + 1 < blocks; b += 2, at += 2 * to_stride) {
      const __m512i x = load(first < 0 ? -1 : first + b * 16), y = load(second < 0 ? -1 : second + b * 16);
      const __m512i even = _mm512_unpacklo_epi16(x, y), odd = _mm512_unpackhi_epi16(x, y);
      _mm512_store_si512(at, _mm512_permutex2var_epi64(even, low, odd));
      _mm512_store_si512(at + to_stride, _mm512_permutex2var_epi64(even, high, odd));
    }
  }
  if (blocks % 2 == 1) PackPairs(from + (blocks - 1) * 16, offsets, pairs, to + (blocks - 1) * to_stride);
}

// Transposes each 16 pairs of a packed block, for tiles of rows.
void TransposePairs(int64_t pairs, uint32_t* packed) {
  auto* words = reinterpret_cast<float*>(packed);
  for (int64_t pair = 0; pair < pairs; pair += 16, words += 16 * 16) {
    Vec v[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) v[i] = Load(words + i * 16);
    Transpose(v);
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) Store(words + i * 16, v[i]);
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

// The same with tiles, for one or two blocks of rows and of columns, transposed; the sums of a block of rows are
// `next_sums` floats before the next one's, those of a block of columns a tile.
template <bool kTwoRows, bool kTwoColumns>
void MultiplyInTiles(const uint32_t* rows, const uint32_t* next_rows, const uint32_t* columns, int64_t pairs, bool add,
                     float* sums, int64_t next_sums) {
  constexpr int64_t kTileWords = kTileRows * kTileColumns;
  const BlockSums blocks = {sums, next_sums, kTileWords};
  if (add) {
    LoadSums<kTwoColumns, kTwoRows>(blocks);
  } else {
    ClearSums();
  }
  for (int64_t at = 0; at < pairs * 16; at += kTileWords) {
    MultiplyBlocks<kTwoColumns, kTwoRows>(columns + at, columns + PairProduct::kBlockWords + at, rows + at,
                                          next_rows + at);
  }
  StoreSums<kTwoColumns, kTwoRows>(blocks);
}

// Rounds [columns][16] numbers, the former a multiple of 16, into 16 rows that lie `stride` apart.
void StoreTransposed(const float* from, int64_t columns, int64_t stride, BFloat16* to) {
  for (int64_t column = 0; column < columns; column += 16, from += 16 * 16) {
    Vec v[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) v[i] = Load(from + i * 16);
    Transpose(v);
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) StoreBFloat16(reinterpret_cast<uint16_t*>(to + i * stride + column), v[i]);
  }
}

// Rounds [rows][columns] numbers, the latter a multiple of 16, into rows that lie `stride` apart.
void StoreRounded(const float* from, int64_t rows, int64_t columns, int64_t stride, BFloat16* to) {
  for (int64_t row = 0; row < rows; ++row, to += stride) {
    for (int64_t column = 0; column < columns; column += 16, from += 16) {
      StoreBFloat16(reinterpret_cast<uint16_t*>(to + column), Load(from));
    }
  }
}

}  // namespace avx512
#pragma GCC pop_options

// Offsets of the first channel of pixels [begin, end), as PairProduct counts them, times a stride plus a shift; -1
// where there is none.
struct Steps {
  int64_t stride_down = 1, stride_right = 1, down = 0, right = 0;
};
void FindOffsets(const PairProduct& p, const ImageMemory& memory, const Steps& steps, int64_t begin, int64_t end,
                 int64_t* offsets) {
  for (; begin < std::min<int64_t>(end, 0); ++begin) *offsets++ = -1;
  int64_t column = begin % p.row_pixels, row = begin / p.row_pixels % p.rows_of_image;
  int64_t image = begin / p.row_pixels / p.rows_of_image;
  for (int64_t i = begin; i < end; ++i) {
    const int64_t y = row * steps.stride_down + steps.down, x = column * steps.stride_right + steps.right;
    const bool inside = image < p.images && y >= 0 && y < memory.rows && x >= 0 && x < memory.columns;
    *offsets++ = inside ? image * memory.image + (y * memory.columns + x) * memory.pixel : -1;
    if (++column < p.row_pixels) continue;
    column = 0;
    if (++row < p.rows_of_image) continue;
    row = 0;
    ++image;
  }
}

// The steps to what lies under a place of the pixels' windows.
Steps StepsTo(const PairProduct& p, int64_t place) {
  return {p.height.stride, p.width.stride, p.Down(place), p.Right(place)};
}

// Packs `pairs` of blocks, the first of which is at `from` and those after it as `stride` says.
void PackBlocks(const BFloat16* from, int64_t stride, const int64_t* offsets, int64_t pairs, int64_t blocks,
                uint32_t* to, int64_t to_stride) {
  if (stride == 16) return avx512::PackPixels(from, offsets, pairs, blocks, to, to_stride);
  for (int64_t b = 0; b < blocks; ++b) avx512::PackPairs(from + b * stride, offsets, pairs, to + b * to_stride);
}

// Packs blocks [begin, end) of the parts from `first` on, counted through all parts.
void Pack(const PairProduct& p, const BFloat16* images, const BFloat16* output, int64_t first, int64_t begin,
          int64_t end, uint32_t* packed) {
  int64_t offsets[PairProduct::kPixels + 2 * PairProduct::kMostHalo + 1];
  for (int64_t i = begin, count; i < end; i += count) {
    const int64_t block = i % p.blocks(), column_block = block - p.image_blocks();
    const int64_t part = first + i / p.blocks(), pixel = part * PairProduct::kPixels;
    const int64_t pixels = p.PackedPixels(p.PixelsOf(part));
    uint32_t* const to = packed + i / p.blocks() * p.part_words() + p.BlockAt(block);
    if (column_block >= 0) {
      count = std::min(p.blocks() - block, end - i);
      FindOffsets(p, p.out, {}, pixel, pixel + pixels, offsets);
      PackBlocks(output + column_block * p.out.block, p.out.block, offsets, pixels / 2, count, to,
                 PairProduct::kBlockWords);
      for (int64_t b = 0; p.tiles && b < count; ++b) {
        avx512::TransposePairs(pixels / 2, to + b * PairProduct::kBlockWords);
      }
    } else if (p.shifts) {
      const int64_t half = block / p.in_blocks(), in_block = block % p.in_blocks();
      count = std::min(p.in_blocks() - in_block, end - i);
      FindOffsets(p, p.in, {}, pixel - p.halo, pixel + pixels + p.halo + 1, offsets);
      PackBlocks(images + in_block * p.in.block, p.in.block, offsets + half, pixels / 2 + p.halo, count, to,
                 p.image_block_words());
    } else {
      const int64_t in_block = block % p.in_blocks();
      count = std::min(p.in_blocks() - in_block, end - i);
      FindOffsets(p, p.in, StepsTo(p, block / p.in_blocks()), pixel, pixel + pixels, offsets);
      PackBlocks(images + in_block * p.in.block, p.in.block, offsets, pixels / 2, count, to, PairProduct::kBlockWords);
    }
  }
}

// Where packing block `i`, counted as in Pack, begins to read; nullptr if another block of the part reads there too.
const BFloat16* SourceOf(const PairProduct& p, const BFloat16* images, const BFloat16* output, int64_t first,
                         int64_t i) {
  const int64_t block = i % p.blocks(), column_block = block - p.image_blocks();
  const int64_t pixel = (first + i / p.blocks()) * PairProduct::kPixels;
  int64_t offset;
  if (column_block >= 0) {
    FindOffsets(p, p.out, {}, pixel, pixel + 1, &offset);
    return output + offset + column_block * p.out.block;
  }
  if (block >= p.in_blocks()) return nullptr;
  FindOffsets(p, p.in, StepsTo(p, 0), pixel, pixel + 1, &offset);
  return images + std::max<int64_t>(offset, 0) + block * p.in.block;
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
  for (int64_t part = 0; part < parts; ++part, packed += p.part_words()) {
    const int64_t pairs = p.PackedPixels(p.PixelsOf(first + part)) / 2;
    const bool add = first + part > 0;
    for (int64_t tile = begin; tile < end; ++tile) {
      const int64_t panel = tile / p.row_blocks(), row_block = tile % p.row_blocks();
      const uint32_t *const rows = packed + p.RowsAt(row_block), *const columns = packed + p.ColumnsAt(panel);
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

// The same with tiles. What is packed next is not fetched meanwhile.
void MultiplyInTiles(const PairProduct& p, const uint32_t* packed, int64_t first, int64_t parts, int64_t begin,
                     int64_t end, float* sums) {
  const Tiles tiles;
  for (int64_t part = 0; part < parts; ++part, packed += p.part_words()) {
    const int64_t pairs = p.PackedPixels(p.PixelsOf(first + part)) / 2;
    const bool add = first + part > 0;
    for (int64_t tile = begin, count; tile < end; tile += count) {
      const int64_t panel = tile / p.row_blocks(), row_block = tile % p.row_blocks();
      count = tile + 1 < end && row_block + 1 < p.row_blocks() ? 2 : 1;
      const uint32_t *const rows = packed + p.RowsAt(row_block), *const columns = packed + p.ColumnsAt(panel);
      const uint32_t* const next_rows = packed + p.RowsAt(row_block + count - 1);
      float* const to = sums + p.TileOffset(panel, row_block);
      const int64_t next = 16 * p.PanelWidth(panel);
      const bool wide = p.PanelWidth(panel) == 32;
      const auto multiply = count == 2
                                ? wide ? avx512::MultiplyInTiles<true, true> : avx512::MultiplyInTiles<true, false>
                            : wide ? avx512::MultiplyInTiles<false, true>
                                   : avx512::MultiplyInTiles<false, false>;
      multiply(rows, next_rows, columns, pairs, add, to, next);
    }
  }
}

}  // namespace

bool BFloat16FilterGradientSupports(const ConvGeometry& g) {
  const int64_t out_channels = g.output.shape.dim(3);
  if (!OnednnComputesIn(DType::kBFloat16) || g.images.shape.dim(3) % 16 != 0 || out_channels % 16 != 0) return false;
  // Tiles multiply so fast that packing takes most of the time; few columns for it are too few.
  constexpr int64_t kColumns = 64;
  return !OnednnHasAmx() || g.window.height.window * g.window.width.window == 1 || out_channels >= kColumns;
}

Kernel MakeBFloat16FilterGradient(const KernelSpec& spec) {
  const ConvGeometry g = ConvGeometryOf(spec.node);
  const PairProduct p(g, spec.input_layouts[conv2d_backprop_filter::kImages],
                      spec.input_layouts[conv2d_backprop_filter::kDy], OnednnHasAmx());
  ScratchPlan scratch;
  const int64_t packed_at = scratch.Add(p.group() * p.part_words() * sizeof(uint32_t));
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
                    if (p.tiles) {
                      MultiplyInTiles(p, packed, first, parts, begin, end, sums);
                    } else {
                      Multiply(p, images, dy, packed, first, parts, begin, end, sums);
                    }
                  });
                }
                ParallelFor(p.row_blocks(), 1, [&](int64_t begin, int64_t end) {
                  for (int64_t row_block = begin; row_block < end; ++row_block) {
                    BFloat16* const rows = d_filters + row_block * 16 * p.out_channels;
                    for (int64_t panel = 0; panel < p.panels(); ++panel) {
                      const float* const from = sums + p.TileOffset(panel, row_block);
                      if (p.tiles) {
                        avx512::StoreTransposed(from, p.PanelWidth(panel), p.out_channels, rows + 32 * panel);
                      } else {
                        avx512::StoreRounded(from, 16, p.PanelWidth(panel), p.out_channels, rows + 32 * panel);
                      }
                    }
                  }
                });
                return absl::OkStatus();
              },
          .scratch_bytes = scratch.bytes(),
          .algorithm = p.tiles ? "product of patches, AMX" : "product of patches, AVX-512 BF16"};
}

}  // namespace official::compute
