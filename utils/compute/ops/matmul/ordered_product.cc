#include "utils/compute/ops/matmul/ordered_product.h"

#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "utils/compute/core/batch_parts.h"
#include "utils/compute/cpu/parallel.h"

namespace official::compute {
namespace {

#define OFFICIAL_ISA_AVX512 0
#define OFFICIAL_ISA_BF16 0
#include "utils/compute/cpu/tile_multiply-inl.h"
#undef OFFICIAL_ISA_AVX512
#undef OFFICIAL_ISA_BF16

constexpr int64_t kColumns = kMaxTileVecs * kLanes;  // of a panel of b
constexpr int64_t kDepth = 320;                      // of the sum at a time: a panel takes 20 kB of the L1 cache
constexpr int64_t kTiles = 48, kRows = kTiles * kMaxTileRows;  // of a at a time: 360 kB of the L2 cache
constexpr size_t kCacheLine = 64;

struct alignas(kCacheLine) Scratch {
  float a[kTiles][kDepth][kMaxTileRows];
  float behind_a[kLanes - kMaxTileRows];  // which the last stores of PackTile reach
  alignas(kCacheLine) float b[kDepth][kColumns];
  float edge[kMaxTileRows][kColumns];
  const void* lines[kDepth];
};

// Writes the transpose of `count` rows of `length` floats, count <= kLanes: [length] rows to_stride apart. Of each,
// kLanes floats are written, zeros behind the first `count`, so that where to_stride is less the next row is written
// over them.
void PackTransposed(const float* from, int64_t from_stride, int64_t count, int64_t length, float* to,
                    int64_t to_stride) {
  int64_t i = 0;
  Vec rows[kLanes];
  for (; i + kLanes <= length; i += kLanes, to += kLanes * to_stride) {
#pragma GCC unroll 8
    for (int r = 0; r < kLanes; ++r) rows[r] = r < count ? Load(from + r * from_stride + i) : Zero();
    Transpose(rows);
#pragma GCC unroll 8
    for (int r = 0; r < kLanes; ++r) Store(to + r * to_stride, rows[r]);
  }
  for (; i < length; ++i, to += to_stride) {
    Store(to, Zero());
    for (int64_t r = 0; r < count; ++r) to[r] = from[r * from_stride + i];
  }
}

// The part of one product that a thread computes at a time.
struct Block {
  const float *a, *b, *bias;
  float* y;
  int64_t row_begin, row_end, column_begin, column_end;
};

class BlockProduct {
 public:
  BlockProduct(const OrderedProduct& p, const Block& block, Scratch& scratch) : p_(p), block_(block), s_(scratch) {}

  void Run(bool relu) {
    num_tiles_ = (block_.row_end - block_.row_begin + kMaxTileRows - 1) / kMaxTileRows;
    const int64_t num_depths = (p_.k + kDepth - 1) / kDepth;
    for (int64_t i = 0; i < num_depths; ++i) {
      const Share sum = ShareOf(p_.k, i, num_depths);
      for (int64_t tile = 0; tile < num_tiles_; ++tile) PackTile(tile, sum.begin, sum.size());
      for (int64_t column = block_.column_begin; column < block_.column_end; column += kColumns) {
        const int64_t columns = std::min(kColumns, block_.column_end - column);
        PackPanel(column, columns, sum.begin, sum.size());
        const bool fetch = p_.b_column_stride == 1 && column + kColumns < block_.column_end;
        if (fetch) ListLines(column + kColumns, sum.begin, sum.size());
        for (int64_t tile = 0; tile < num_tiles_; ++tile) {
          Multiply(tile, column, columns, sum.size(), i > 0, fetch && tile == 0);
        }
      }
    }
    Finish(relu);
  }

 private:
  int64_t TileBegin(int64_t tile) const { return block_.row_begin + tile * kMaxTileRows; }
  int64_t TileRows(int64_t tile) const { return std::min<int64_t>(kMaxTileRows, block_.row_end - TileBegin(tile)); }

  void PackTile(int64_t tile, int64_t k, int64_t depth) {
    const int64_t rows = TileRows(tile);
    const float* from = block_.a + TileBegin(tile) * p_.a_row_stride + k * p_.a_column_stride;
    if (p_.a_row_stride == 1) {
      PackRows(from, p_.a_column_stride, static_cast<int>(rows), depth, s_.a[tile][0]);
      return;
    }
    PackTransposed(from, p_.a_row_stride, rows, depth, s_.a[tile][0], kMaxTileRows);
  }

  // Columns that are missing in the last panel are zero.
  void PackPanel(int64_t column, int64_t columns, int64_t k, int64_t depth) {
    if (columns < kColumns) std::memset(s_.b, 0, depth * sizeof(s_.b[0]));
    const float* from = block_.b + k * p_.b_row_stride + column * p_.b_column_stride;
    if (p_.b_column_stride == 1) {
      for (int64_t i = 0; i < depth; ++i) std::memcpy(s_.b[i], from + i * p_.b_row_stride, columns * sizeof(float));
      return;
    }
    for (int64_t c = 0; c < columns; c += kLanes) {
      PackTransposed(from + c * p_.b_column_stride, p_.b_column_stride, std::min<int64_t>(kLanes, columns - c), depth,
                     &s_.b[0][c], kColumns);
    }
  }

  // The lines of memory from which the next panel will be packed.
  void ListLines(int64_t column, int64_t k, int64_t depth) {
    const float* const from = block_.b + k * p_.b_row_stride + column;
    for (int64_t i = 0; i < depth; ++i) s_.lines[i] = from + i * p_.b_row_stride;
  }

  // Fetches the lines that a tile will write: each row may be in a page of its own.
  void FetchOutputs(int64_t tile, int64_t column) const {
    if (tile == num_tiles_) return;
    const float* const y = block_.y + TileBegin(tile) * p_.n + column;
    for (int64_t r = 0; r < TileRows(tile); ++r) __builtin_prefetch(y + r * p_.n, /*rw=*/1);
  }

  void Multiply(int64_t tile, int64_t column, int64_t columns, int64_t depth, bool accumulate, bool fetch) {
    const int64_t rows = TileRows(tile);
    const bool whole = columns == kColumns;
    float* const y = block_.y + TileBegin(tile) * p_.n + column;
    FetchOutputs(tile + 1, column);
    if (!whole && accumulate) {
      for (int64_t r = 0; r < rows; ++r) std::memcpy(s_.edge[r], y + r * p_.n, columns * sizeof(float));
    }
    const TileFunction multiply = fetch ? FindTile<1, 1, 1>(static_cast<int>(rows), kMaxTileVecs)
                                        : FindTile<1, 1>(static_cast<int>(rows), kMaxTileVecs);
    multiply({.a = s_.a[tile][0],
              .w = s_.b[0],
              .w_stride = kColumns,
              .out = whole ? y : s_.edge[0],
              .blocks = 1,
              .block_stride = 0,
              .height = 1,
              .y_stride = 0,
              .width = depth,
              .x_stride = kMaxTileRows,
              .out_stride = whole ? p_.n : kColumns,
              .accumulate = accumulate,
              .prefetch = fetch ? s_.lines : nullptr});
    if (whole) return;
    for (int64_t r = 0; r < rows; ++r) std::memcpy(y + r * p_.n, s_.edge[r], columns * sizeof(float));
  }

  void Finish(bool relu) const {
    if (p_.k > 0 && block_.bias == nullptr && !relu) return;
    for (int64_t r = block_.row_begin; r < block_.row_end; ++r) {
      float* const y = block_.y + r * p_.n;
      for (int64_t c = block_.column_begin; c < block_.column_end; ++c) {
        float value = p_.k > 0 ? y[c] : 0;
        if (block_.bias != nullptr) value += block_.bias[c];
        y[c] = relu && value < 0 ? 0 : value;  // NaN passes through
      }
    }
  }

  const OrderedProduct& p_;
  const Block& block_;
  Scratch& s_;
  int64_t num_tiles_ = 0;
};

}  // namespace

int64_t OrderedProduct::scratch_bytes() const {
  return (num_threads == 1 ? 1 : MostThreads()) * static_cast<int64_t>(sizeof(Scratch));
}

void OrderedProduct::Run(const float* a, const float* b, const float* bias, bool relu, float* y, void* scratch) const {
  const int64_t tiles = (m + kMaxTileRows - 1) / kMaxTileRows;
  const int64_t row_blocks = (m + kRows - 1) / kRows, panels = (n + kColumns - 1) / kColumns;
  // Enough to give each thread some.
  const int64_t column_blocks = std::clamp<int64_t>(2 * num_threads / (batch * row_blocks), 1, panels);
  const int64_t tasks = batch * row_blocks * column_blocks;
  const auto run_task = [&](int64_t task, Scratch& thread_scratch) {
    const int64_t columns = task % column_blocks, rows = task / column_blocks % row_blocks;
    const int64_t i = task / column_blocks / row_blocks;
    const Block block = {.a = a + i * a_batch_stride,
                         .b = b + i * b_batch_stride,
                         .bias = bias,
                         .y = y + i * m * n,
                         .row_begin = tiles * rows / row_blocks * kMaxTileRows,
                         .row_end = std::min(tiles * (rows + 1) / row_blocks * kMaxTileRows, m),
                         .column_begin = panels * columns / column_blocks * kColumns,
                         .column_end = std::min(panels * (columns + 1) / column_blocks * kColumns, n)};
    BlockProduct(*this, block, thread_scratch).Run(relu);
  };
  auto* const scratches = static_cast<Scratch*>(scratch);
  if (num_threads == 1) {  // more would have no memory
    for (int64_t task = 0; task < tasks; ++task) run_task(task, scratches[0]);
    return;
  }
  ParallelFor(tasks, 1, [&](int64_t first, int64_t last) {
    for (int64_t task = first; task < last; ++task) run_task(task, scratches[ThreadNumber()]);
  });
}

}  // namespace official::compute
