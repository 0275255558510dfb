// Products of bfloat16 with the tiles of AMX (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1
// chapter 18), for kernels that run where CpuIsa() is Isa::kAmx. Each thread has eight tiles, each of 16 rows of 64
// bytes. Here 0 to 3 are 16 x 16 sums in float, of two blocks of rows and two of columns; 4 and 5 are the factors of
// the rows, [16][32] bfloat16; 6 and 7 those of the columns, [16 pairs of the depth][16 columns].
#pragma once

#include <cstdint>

namespace official::compute {

constexpr int64_t kTileRows = 16, kTileColumns = 16, kTileDepth = 32, kTileRowBytes = 64;

// While it lives, the calling thread has tiles, whose numbers begin as zero.
class Tiles {
 public:
  Tiles() {
    struct alignas(64) Config {
      uint8_t palette = 1, start_row = 0, reserved[14] = {};
      uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    };
    static constexpr Config kConfig;
    asm volatile("ldtilecfg (%0)" : : "r"(&kConfig) : "memory");
  }
  ~Tiles() { asm volatile("tilerelease" : : : "memory"); }
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;
};

// Loads a tile whose rows are `stride` bytes apart; 0: all rows are the same.
template <int kTile>
inline void LoadTile(const void* from, int64_t stride = kTileRowBytes) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(kTile) : "memory");
}
template <int kTile>
inline void StoreTile(void* to) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(kTileRowBytes), "i"(kTile) : "memory");
}
template <int kTile>
inline void ClearTile() {
  asm volatile("tilezero %%tmm%c0" : : "i"(kTile));
}
// Adds to a tile of sums the products of one of rows and one of columns.
template <int kSums, int kRows, int kColumns>
inline void MultiplyTile() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSums), "i"(kRows), "i"(kColumns));
}

// The same for a block of rows and one of columns, in tile 0; with a second block of columns also in tile 1, with a
// second one of rows in 2 and 3.
template <bool kTwoRows = true, bool kTwoColumns = true>
inline void MultiplyBlocks(const void* rows, const void* next_rows, const void* columns, const void* next_columns) {
  LoadTile<4>(rows);
  LoadTile<6>(columns);
  MultiplyTile<0, 4, 6>();
  if constexpr (kTwoColumns) {
    LoadTile<7>(next_columns);
    MultiplyTile<1, 4, 7>();
  }
  if constexpr (kTwoRows) {
    LoadTile<5>(next_rows);
    MultiplyTile<2, 5, 6>();
    if constexpr (kTwoColumns) MultiplyTile<3, 5, 7>();
  }
}

// Where the sums of these blocks are in memory: those of the second block of columns `right` floats behind, those of
// the second one of rows `down`.
struct BlockSums {
  float* first;
  int64_t right, down;
};
template <bool kTwoRows = true, bool kTwoColumns = true>
inline void LoadSums(const BlockSums& sums) {
  LoadTile<0>(sums.first);
  if constexpr (kTwoColumns) LoadTile<1>(sums.first + sums.right);
  if constexpr (kTwoRows) LoadTile<2>(sums.first + sums.down);
  if constexpr (kTwoRows && kTwoColumns) LoadTile<3>(sums.first + sums.down + sums.right);
}
template <bool kTwoRows = true, bool kTwoColumns = true>
inline void StoreSums(const BlockSums& sums) {
  StoreTile<0>(sums.first);
  if constexpr (kTwoColumns) StoreTile<1>(sums.first + sums.right);
  if constexpr (kTwoRows) StoreTile<2>(sums.first + sums.down);
  if constexpr (kTwoRows && kTwoColumns) StoreTile<3>(sums.first + sums.down + sums.right);
}
inline void ClearSums() {
  ClearTile<0>();
  ClearTile<1>();
  ClearTile<2>();
  ClearTile<3>();
}

}  // namespace official::compute
