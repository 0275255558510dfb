// CUDA kernels of Concat, Slice, Pad and Transpose: copies of runs of bytes, a thread for each of the widest words that
// fit, and of square tiles where the innermost dimension changes.

#include "utils/compute/ops/array/array.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/compute/cuda/cuda_device.h"
#include "utils/compute/cuda/cuda_status.h"
#include "utils/compute/cuda/launch.h"
#include "utils/compute/ops/array/moves.h"

namespace official::compute {
namespace {

constexpr int kThreads = 256;
constexpr int kMaxDims = 8;
constexpr int kTile = 32;
constexpr int kTileRows = 8;  // copied at a time by the threads of a tile
constexpr int kMinTile = 8;   // dimensions smaller than this would leave most threads of a tile without work

// Up to kMaxDims dimensions, as a kernel argument.
struct Dims {
  int count = 0;
  MoveDim at[kMaxDims];

  static absl::StatusOr<Dims> Of(const std::vector<MoveDim>& dims, const Node& node) {
    if (dims.size() > kMaxDims) {
      return absl::UnimplementedError(absl::StrCat(node.name(), " moves elements of ", node.input(0).type().ToString(),
                                                   " in ", dims.size(), " dimensions, more than ", kMaxDims));
    }
    Dims result;
    for (const MoveDim& d : dims) result.at[result.count++] = d;
    return result;
  }

  // The strides times the coordinates of the `index`-th element.
  template <typename Index>
  __device__ void Offsets(Index index, int64_t& from, int64_t& to) const {
    for (int d = count - 1; d >= 0; --d) {
      const Index size = static_cast<Index>(at[d].size), coordinate = index % size;
      from += coordinate * at[d].from;
      to += coordinate * at[d].to;
      index /= size;
    }
  }
};

// Word `i % run` of run `i / run`.
template <typename Word, typename Index>
__global__ void __launch_bounds__(kThreads)
    CopyWords(const Word* source, Word* target, Index words, Index run, const Dims __grid_constant__ dims) {
  const Index i = ThreadIndex<Index>();
  if (i >= words) return;
  int64_t from = i % run, to = from;
  dims.Offsets<Index>(i / run, from, to);
  target[to] = source[from];
}

// A copy of a box, with all lengths in words of word_bytes.
struct WordCopy {
  int word_bytes;
  int64_t from_begin, to_begin, run, words;
  Dims dims;
  cudaStream_t stream;

  static absl::StatusOr<WordCopy> Of(const BoxCopy& copy, const KernelSpec& spec) {
    ASSIGN_OR_RETURN(Dims dims, Dims::Of(copy.dims, spec.node));
    // The largest power of two up to 16 that divides everything.
    int64_t bits = 16 | copy.run_bytes | copy.from_begin | copy.to_begin;
    for (const MoveDim& d : copy.dims) bits |= d.from | d.to;
    const int64_t word = bits & -bits;
    for (int d = 0; d < dims.count; ++d) {
      dims.at[d].from /= word;
      dims.at[d].to /= word;
    }
    const int64_t run = copy.run_bytes / word;
    return WordCopy{
        static_cast<int>(word),     copy.from_begin / word, copy.to_begin / word, run, run * copy.num_runs(), dims,
        CudaDeviceOf(spec).stream()};
  }

  template <typename Word>
  void Run(const void* from, void* to) const {
    WithIndexType(words, [&]<typename Index>(Index) {
      Launch(CopyWords<Word, Index>, NumBlocks(words, kThreads), kThreads, 0, stream,
             static_cast<const Word*>(from) + from_begin, static_cast<Word*>(to) + to_begin, static_cast<Index>(words),
             static_cast<Index>(run), dims);
    });
  }

  absl::Status Run(const void* from, void* to) const {
    if (words == 0) return absl::OkStatus();
    switch (word_bytes) {
      case 1:
        Run<uint8_t>(from, to);
        break;
      case 2:
        Run<uint16_t>(from, to);
        break;
      case 4:
        Run<uint32_t>(from, to);
        break;
      case 8:
        Run<uint2>(from, to);
        break;
      default:
        Run<uint4>(from, to);
    }
    return LaunchStatus("CopyWords");
  }
};

absl::StatusOr<Kernel> MakeCopies(const KernelSpec& spec) {
  std::vector<WordCopy> copies;
  for (const BoxCopy& box : BoxCopiesOf(spec.node)) {
    ASSIGN_OR_RETURN(const WordCopy copy, WordCopy::Of(box, spec));
    copies.push_back(copy);
  }
  return Kernel{[copies](const KernelArgs& args) -> absl::Status {
    for (size_t i = 0; i < copies.size(); ++i) RETURN_IF_ERROR(copies[i].Run(args.inputs[i], args.outputs[0]));
    return absl::OkStatus();
  }};
}

absl::StatusOr<Kernel> MakePad(const KernelSpec& spec) {
  ASSIGN_OR_RETURN(const WordCopy copy, WordCopy::Of(BoxCopiesOf(spec.node)[0], spec));
  return Kernel{[copy, bytes = spec.output(0).num_bytes()](const KernelArgs& args) -> absl::Status {
    if (bytes == 0) return absl::OkStatus();
    RETURN_IF_ERROR(CudaStatus(cudaMemsetAsync(args.outputs[0], 0, bytes, copy.stream), "cudaMemsetAsync"));
    return copy.Run(args.inputs[0], args.outputs[0]);
  }};
}

// What changes places: `row` is innermost in the input, `column` in the output; the rest is `outer`.
struct Tiles {
  Dims outer;
  MoveDim row, column;
  int64_t row_tiles, column_tiles, count;
};

template <typename T>
__global__ void __launch_bounds__(kTile* kTileRows)
    TransposeTiles(const T* source, T* target, const Tiles __grid_constant__ tiles) {
  __shared__ Shared<T[kTile][kTile + 1]> tile;  // one more, or a column would lie in a single bank
  const int64_t block = blockIdx.x;
  int64_t from = 0, to = 0;
  tiles.outer.Offsets<int64_t>(block / tiles.column_tiles / tiles.row_tiles, from, to);
  const int64_t first_row = block / tiles.column_tiles % tiles.row_tiles * kTile;
  const int64_t first_column = block % tiles.column_tiles * kTile;
  const int x = threadIdx.x % kTile;
  for (int y = threadIdx.x / kTile; y < kTile; y += kTileRows) {
    const int64_t row = first_row + x, column = first_column + y;
    if (row < tiles.row.size && column < tiles.column.size)
      tile[y][x] = source[from + row + column * tiles.column.from];
  }
  __syncthreads();
  for (int y = threadIdx.x / kTile; y < kTile; y += kTileRows) {
    const int64_t row = first_row + y, column = first_column + x;
    if (row < tiles.row.size && column < tiles.column.size) target[to + row * tiles.row.to + column] = tile[x][y];
  }
}

template <typename T>
Kernel MakeTiles(const Tiles& tiles, cudaStream_t stream) {
  return {[tiles, stream](const KernelArgs& args) {
    Launch(TransposeTiles<T>, static_cast<unsigned>(tiles.count), kTile * kTileRows, 0, stream, args.input<T>(0),
           args.output<T>(0), tiles);
    return LaunchStatus("TransposeTiles");
  }};
}

absl::StatusOr<Kernel> MakeTiles(std::vector<MoveDim> outer, const MoveDim& row, const MoveDim& column,
                                 const KernelSpec& spec) {
  Tiles tiles{.outer = {}, .row = row, .column = column};
  ASSIGN_OR_RETURN(tiles.outer, Dims::Of(outer, spec.node));
  tiles.row_tiles = NumBlocks(row.size, kTile);
  tiles.column_tiles = NumBlocks(column.size, kTile);
  tiles.count = tiles.row_tiles * tiles.column_tiles;
  for (const MoveDim& d : outer) tiles.count *= d.size;
  const cudaStream_t stream = CudaDeviceOf(spec).stream();
  switch (SizeOf(spec.input(0).dtype)) {
    case 1:
      return MakeTiles<uint8_t>(tiles, stream);
    case 2:
      return MakeTiles<uint16_t>(tiles, stream);
    case 4:
      return MakeTiles<uint32_t>(tiles, stream);
    default:
      return MakeTiles<uint64_t>(tiles, stream);
  }
}

absl::StatusOr<Kernel> MakeTranspose(const KernelSpec& spec) {
  if (spec.input(0).shape.num_elements() == 0) {
    return Kernel{[](const KernelArgs&) { return absl::OkStatus(); }};
  }
  std::vector<MoveDim> dims = TransposeDims(spec.node);
  const MoveDim column = dims.back();
  const auto row = std::find_if(dims.begin(), dims.end(), [](const MoveDim& d) { return d.from == 1; });
  const bool in_runs = column.from == 1;
  if (!in_runs && std::min(row->size, column.size) >= kMinTile) {
    const MoveDim innermost = *row;
    dims.pop_back();
    dims.erase(row);
    return MakeTiles(std::move(dims), innermost, column, spec);
  }
  const int64_t element = SizeOf(spec.input(0).dtype);
  if (in_runs) dims.pop_back();
  for (MoveDim& d : dims) {
    d.from *= element;
    d.to *= element;
  }
  ASSIGN_OR_RETURN(const WordCopy copy,
                   WordCopy::Of({0, 0, in_runs ? column.size * element : element, std::move(dims)}, spec));
  return Kernel{[copy](const KernelArgs& args) { return copy.Run(args.inputs[0], args.outputs[0]); }};
}

const bool registered = [] {
  RegisterKernel({.op = op::Concat, .device_kind = "cuda", .dtypes = AllTypes(), .make = MakeCopies});
  RegisterKernel({.op = op::Pad, .device_kind = "cuda", .dtypes = AllTypes(), .make = MakePad});
  RegisterKernel({.op = op::Slice, .device_kind = "cuda", .dtypes = AllTypes(), .make = MakeCopies});
  RegisterKernel({.op = op::Transpose, .device_kind = "cuda", .dtypes = AllTypes(), .make = MakeTranspose});
  return true;
}();

}  // namespace
}  // namespace official::compute
