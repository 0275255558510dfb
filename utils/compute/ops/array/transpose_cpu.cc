// CPU kernel of Transpose: copies runs if the innermost dimension stays innermost, else square blocks, so that both
// sides use whole cache lines.

#include <algorithm>
#include <cstring>
#include <vector>

#include "utils/compute/cpu/parallel.h"
#include "utils/compute/kernel/kernel.h"
#include "utils/compute/ops/array/array.h"
#include "utils/compute/ops/array/moves.h"

namespace official::compute {
namespace {

constexpr int64_t kBlock = 32;
constexpr int64_t kGrainBytes = 65536;

// Elements by which the copy number `index` over `dims` starts behind the first one.
struct Offsets {
  int64_t from = 0, to = 0;
};
Offsets OffsetsOf(const std::vector<MoveDim>& dims, int64_t index) {
  Offsets offsets;
  for (size_t i = dims.size(); i-- > 0;) {
    offsets.from += index % dims[i].size * dims[i].from;
    offsets.to += index % dims[i].size * dims[i].to;
    index /= dims[i].size;
  }
  return offsets;
}

int64_t CountOf(const std::vector<MoveDim>& dims) {
  int64_t count = 1;
  for (const MoveDim& d : dims) count *= d.size;
  return count;
}

// The innermost dimension stays innermost.
template <typename T>
void CopyRuns(const T* from, T* to, const std::vector<MoveDim>& outer, int64_t run) {
  const int64_t run_bytes = run * static_cast<int64_t>(sizeof(T));
  ParallelFor(CountOf(outer), std::max<int64_t>(1, kGrainBytes / std::max<int64_t>(1, run_bytes)),
              [&](int64_t begin, int64_t end) {
                for (int64_t i = begin; i < end; ++i) {
                  const Offsets at = OffsetsOf(outer, i);
                  std::memcpy(to + at.to, from + at.from, run_bytes);
                }
              });
}

// `row` is innermost in the input, `column` in the output.
template <typename T>
void CopyBlocks(const T* from, T* to, const std::vector<MoveDim>& outer, const MoveDim& row, const MoveDim& column) {
  const int64_t row_blocks = (row.size + kBlock - 1) / kBlock, column_blocks = (column.size + kBlock - 1) / kBlock;
  constexpr int64_t kBlockBytes = kBlock * kBlock * static_cast<int64_t>(sizeof(T));
  ParallelFor(CountOf(outer) * row_blocks * column_blocks, kGrainBytes / kBlockBytes, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Offsets at = OffsetsOf(outer, i / column_blocks / row_blocks);
      const int64_t first_row = i / column_blocks % row_blocks * kBlock, first_column = i % column_blocks * kBlock;
      const int64_t last_row = std::min(row.size, first_row + kBlock);
      const int64_t last_column = std::min(column.size, first_column + kBlock);
      for (int64_t r = first_row; r < last_row; ++r) {
        for (int64_t c = first_column; c < last_column; ++c) {
          to[at.to + r * row.to + c] = from[at.from + r + c * column.from];
        }
      }
    }
  });
}

template <typename T>
Kernel MakeTyped(std::vector<MoveDim> dims) {
  const MoveDim column = dims.back();
  dims.pop_back();
  if (column.from == 1) {
    return {[dims, column](const KernelArgs& args) {
      CopyRuns(args.input<T>(0), args.output<T>(0), dims, column.size);
      return absl::OkStatus();
    }};
  }
  const auto innermost = std::find_if(dims.begin(), dims.end(), [](const MoveDim& d) { return d.from == 1; });
  const MoveDim row = *innermost;
  dims.erase(innermost);
  return {[dims, row, column](const KernelArgs& args) {
    CopyBlocks(args.input<T>(0), args.output<T>(0), dims, row, column);
    return absl::OkStatus();
  }};
}

absl::StatusOr<Kernel> MakeTranspose(const KernelSpec& spec) {
  if (spec.input(0).shape.num_elements() == 0) {
    return Kernel{[](const KernelArgs&) { return absl::OkStatus(); }};
  }
  const std::vector<MoveDim> dims = TransposeDims(spec.node);
  switch (SizeOf(spec.input(0).dtype)) {
    case 1:
      return MakeTyped<uint8_t>(dims);
    case 2:
      return MakeTyped<uint16_t>(dims);
    case 4:
      return MakeTyped<uint32_t>(dims);
    default:
      return MakeTyped<uint64_t>(dims);
  }
}

const bool registered =
    RegisterKernel({.op = op::Transpose, .device_kind = "cpu", .dtypes = AllTypes(), .make = MakeTranspose});

}  // namespace
}  // namespace official::compute
