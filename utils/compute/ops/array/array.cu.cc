// CUDA kernels of Concat, Slice, Pad and Transpose: copies of runs of bytes, and of square tiles where the innermost
// dimension changes.

#include "utils/compute/ops/array/array.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/compute/cuda/box_move.h"
#include "utils/compute/cuda/cuda_device.h"
#include "utils/compute/cuda/cuda_status.h"
#include "utils/compute/cuda/launch.h"
#include "utils/compute/ops/array/moves.h"

namespace official::compute {
namespace {

constexpr int kTile = 32;
constexpr int kTileRows = 8;  // copied at a time by the threads of a tile
constexpr int kMinTile = 8;   // dimensions smaller than this would leave most threads of a tile without work

absl::Status CheckDims(const std::vector<MoveDim>& dims, const Node& node) {
  if (dims.size() <= kMaxMoveDims) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(node.name(), " moves elements of ", node.input(0).type().ToString(),
                                               " in ", dims.size(), " dimensions, more than ", kMaxMoveDims));
}

Kernel MakeMove(const KernelSpec& spec, BoxMove move) {
  return {[move = std::move(move), stream = CudaDeviceOf(spec).stream()](const KernelArgs& args) {
    return move(stream, args.inputs[0], args.outputs[0]);
  }};
}

absl::StatusOr<Kernel> MakeCopies(const KernelSpec& spec) {
  std::vector<BoxMove> moves;
  for (const BoxCopy& box : BoxCopiesOf(spec.node)) {
    RETURN_IF_ERROR(CheckDims(box.dims, spec.node));
    moves.push_back(MoveBox(box));
  }
  return Kernel{[moves, stream = CudaDeviceOf(spec).stream()](const KernelArgs& args) -> absl::Status {
    for (size_t i = 0; i < moves.size(); ++i) RETURN_IF_ERROR(moves[i](stream, args.inputs[i], args.outputs[0]));
    return absl::OkStatus();
  }};
}

absl::StatusOr<Kernel> MakePad(const KernelSpec& spec) {
  const BoxCopy box = BoxCopiesOf(spec.node)[0];
  RETURN_IF_ERROR(CheckDims(box.dims, spec.node));
  return MakeMove(spec, MoveBoxAndPad(box, spec.output(0).num_bytes()));
}

// What changes places: `row` is innermost in the input, `column` in the output; the rest is `outer`.
struct Tiles {
  int outer_dims = 0;
  MoveDim outer[kMaxMoveDims];
  MoveDim row, column;
  unsigned row_tiles, column_tiles, count;
};

template <typename T>
__global__ void __launch_bounds__(kTile* kTileRows)
    TransposeTiles(const T* source, T* target, const Tiles __grid_constant__ tiles) {
  __shared__ Shared<T[kTile][kTile + 1]> tile;  // one more, or a column would lie in a single bank
  const int64_t first_row = int64_t{kTile} * (blockIdx.x / tiles.column_tiles % tiles.row_tiles);
  const int64_t first_column = int64_t{kTile} * (blockIdx.x % tiles.column_tiles);
  unsigned outer = blockIdx.x / tiles.column_tiles / tiles.row_tiles;
  int64_t from = 0, to = 0;
  for (int d = tiles.outer_dims - 1; d >= 0; --d) {
    const MoveDim& dim = tiles.outer[d];
    const unsigned size = static_cast<unsigned>(dim.size), coordinate = outer % size;
    from += coordinate * dim.from;
    to += coordinate * dim.to;
    outer /= size;
  }
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
    Launch(TransposeTiles<T>, tiles.count, kTile * kTileRows, 0, stream, args.input<T>(0), args.output<T>(0), tiles);
    return LaunchStatus("TransposeTiles");
  }};
}

absl::StatusOr<Kernel> MakeTiles(const std::vector<MoveDim>& outer, const MoveDim& row, const MoveDim& column,
                                 const KernelSpec& spec) {
  RETURN_IF_ERROR(CheckDims(outer, spec.node));
  Tiles tiles{.row = row, .column = column};
  tiles.row_tiles = NumBlocks(row.size, kTile);
  tiles.column_tiles = NumBlocks(column.size, kTile);
  tiles.count = tiles.row_tiles * tiles.column_tiles;
  for (const MoveDim& d : outer) {
    tiles.outer[tiles.outer_dims++] = d;
    tiles.count *= static_cast<unsigned>(d.size);
  }
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
    return MakeTiles(dims, innermost, column, spec);
  }
  const int64_t element = SizeOf(spec.input(0).dtype);
  if (in_runs) dims.pop_back();
  for (MoveDim& d : dims) {
    d.from *= element;
    d.to *= element;
  }
  RETURN_IF_ERROR(CheckDims(dims, spec.node));
  return MakeMove(spec, MoveBox({0, 0, in_runs ? column.size * element : element, std::move(dims)}));
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
