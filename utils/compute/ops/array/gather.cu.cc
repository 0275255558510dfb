// CUDA kernels of Gather, IndexedSlices, AddRows and OneHot: each word or element of the result is written once and by
// one thread.

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/compute/cuda/cuda_device.h"
#include "utils/compute/cuda/cuda_status.h"
#include "utils/compute/cuda/launch.h"
#include "utils/compute/cuda/row_sums.h"
#include "utils/compute/cuda/row_threads.h"
#include "utils/compute/cuda/sorted_indices.h"
#include "utils/compute/ops/array/array.h"
#include "utils/compute/ops/array/moves.h"

namespace official::compute {
namespace {

constexpr int kThreads = 256;

// Rows at indices outside [0, num_rows) become zeros.
template <typename Word, typename Index>
__global__ void __launch_bounds__(kThreads) GatherWords(const Word* params, const int32_t* indices, Index words,
                                                        Index row_words, int64_t num_rows, Word* y, DataError error) {
  const Index i = ThreadIndex<Index>();
  if (i >= words) return;
  const Index word = i % row_words;
  const int32_t row = indices[i / row_words];
  const bool found = row >= 0 && row < num_rows;
  if (!found && word == 0) error.Report(row);
  y[i] = found ? params[row * static_cast<int64_t>(row_words) + word] : Word{};
}

template <typename Word>
Kernel MakeGatherOf(const KernelSpec& spec) {
  const TensorType& params = spec.input(gather::kParams);
  const int64_t num_rows = params.shape.dim(0), num_bytes = spec.output(gather::kY).num_bytes();
  const int64_t row_bytes = params.shape.Product(1, params.shape.rank()) * SizeOf(params.dtype);
  const int64_t words = num_bytes / static_cast<int64_t>(sizeof(Word));
  const int64_t row_words = row_bytes / static_cast<int64_t>(sizeof(Word));
  CudaDevice& device = CudaDeviceOf(spec);
  const DataError error = device.AddDataError(spec.node, [num_rows](int32_t value) {
    return absl::StrCat("index ", value, " is outside [0, ", num_rows, ")");
  });
  return {[=, stream = device.stream()](const KernelArgs& args) {
    if (words == 0) return absl::OkStatus();
    WithIndexType(words, [&]<typename Index>(Index) {
      Launch(GatherWords<Word, Index>, NumBlocks(words, kThreads), kThreads, 0, stream,
             args.input<Word>(gather::kParams), args.input<int32_t>(gather::kIndices), static_cast<Index>(words),
             static_cast<Index>(row_words), num_rows, args.output<Word>(gather::kY), error);
    });
    return LaunchStatus("GatherWords");
  }};
}

absl::StatusOr<Kernel> MakeGather(const KernelSpec& spec) {
  const TensorType& params = spec.input(gather::kParams);
  const int64_t bits = 16 | params.shape.Product(1, params.shape.rank()) * SizeOf(params.dtype);
  switch (bits & -bits) {  // the largest power of two up to 16 that divides the bytes of a row
    case 1:
      return MakeGatherOf<uint8_t>(spec);
    case 2:
      return MakeGatherOf<uint16_t>(spec);
    case 4:
      return MakeGatherOf<uint32_t>(spec);
    case 8:
      return MakeGatherOf<uint2>(spec);
    default:
      return MakeGatherOf<uint4>(spec);
  }
}

// The first place in `sorted` whose value is not less than `value`.
__device__ int32_t LowerBound(const int32_t* sorted, int32_t count, int64_t value) {
  int32_t begin = 0;
  for (int64_t step = int64_t{1} << 30; step > 0; step /= 2) {
    if (begin + step <= count && sorted[begin + step - 1] < value) begin += static_cast<int32_t>(step);
  }
  return begin;
}

// y[v, c] = the sum of rows[position, c] over the positions of index v, in float.
template <typename Threads, typename T>
__global__ void __launch_bounds__(Threads::kBlock) SumRows(RowSums<T> sums, int64_t num_rows, T* y) {
  const int64_t v = Threads::Row();
  if (v >= num_rows) return;
  const int32_t begin = LowerBound(sums.sorted.indices, sums.count, v);
  const bool found = begin < sums.count && sums.sorted.indices[begin] == v;
  for (int64_t c = Threads::Lane(); c < sums.width; c += Threads::kRowThreads) {
    y[v * sums.width + c] = T(found ? sums(begin, c) : 0.0f);
  }
}

template <typename T>
absl::StatusOr<Kernel> MakeIndexedSlicesOf(const KernelSpec& spec) {
  const Shape& dense = spec.output(indexed_slices::kY).shape;
  const int64_t num_rows = dense.dim(0), width = dense.Product(1, dense.rank());
  const auto count = static_cast<int32_t>(spec.input(indexed_slices::kIndices).shape.num_elements());
  CudaDevice& device = CudaDeviceOf(spec);
  ASSIGN_OR_RETURN(const SortedIndices sort,
                   SortedIndices::Make(device, spec.node, "index", count, static_cast<int32_t>(num_rows)));
  Kernel kernel;
  kernel.scratch_bytes = sort.scratch_bytes() + RowSums<T>::ScratchBytes(count, width);
  kernel.run = [=, stream = device.stream()](const KernelArgs& args) -> absl::Status {
    ASSIGN_OR_RETURN(const SortedIndices::Result sorted,
                     sort.Sort(args.input<int32_t>(indexed_slices::kIndices), args.scratch));
    if (num_rows == 0 || width == 0) return absl::OkStatus();
    const RowSums<T> sums{sorted, count, args.input<T>(indexed_slices::kRows), width,
                          RowSums<T>::PiecesAt(args.scratch, sort.scratch_bytes())};
    RETURN_IF_ERROR(LaunchSumPieces(sums, stream));
    WithRowThreads<1>(width, [&]<typename Threads>(Threads) {
      Launch(SumRows<Threads, T>, NumBlocks(num_rows, Threads::kRowsOfBlock), Threads::kBlock, 0, stream, sums,
             num_rows, args.output<T>(indexed_slices::kY));
    });
    return LaunchStatus("SumRows");
  };
  return kernel;
}

absl::StatusOr<Kernel> MakeIndexedSlices(const KernelSpec& spec) {
  return WithStorageType(spec.input(indexed_slices::kRows).dtype,
                         [&]<typename T>(T) { return MakeIndexedSlicesOf<T>(spec); });
}

// y[v, c] += the sum of rows[position, c] over the positions of index v, in float; a thread for each position and c, of
// which the first of each index does the work.
template <typename T, typename Index>
__global__ void __launch_bounds__(kThreads)
    AddSums(RowSums<T> sums, Index elements, Index width, int64_t num_rows, T* y) {
  const Index i = ThreadIndex<Index>();
  if (i >= elements) return;
  const auto k = static_cast<int32_t>(i / width);
  const int64_t c = i % width;
  const int32_t* const indices = sums.sorted.indices;
  const int32_t v = indices[k];
  if (v < 0 || v >= num_rows || (k > 0 && indices[k - 1] == v)) return;
  T& to = y[v * static_cast<int64_t>(width) + c];
  to = T(sums(k, c) + static_cast<float>(to));
}

template <typename T>
absl::StatusOr<Kernel> MakeAddRows(const KernelSpec& spec) {
  const Shape& dense = spec.output(add_rows::kY).shape;
  const int64_t width = dense.Product(1, dense.rank()), num_rows = dense.dim(0);
  const int64_t bytes = spec.output(add_rows::kY).num_bytes();
  const auto count = static_cast<int32_t>(spec.input(add_rows::kIndices).shape.num_elements());
  const int64_t elements = count * width;
  CudaDevice& device = CudaDeviceOf(spec);
  ASSIGN_OR_RETURN(const SortedIndices sort,
                   SortedIndices::Make(device, spec.node, "index", count, static_cast<int32_t>(num_rows)));
  Kernel kernel;
  kernel.scratch_bytes = sort.scratch_bytes() + RowSums<T>::ScratchBytes(count, width);
  kernel.run = [=, stream = device.stream()](const KernelArgs& args) -> absl::Status {
    if (args.outputs[add_rows::kY] != args.inputs[add_rows::kX] && bytes > 0) {
      RETURN_IF_ERROR(CudaStatus(cudaMemcpyAsync(args.outputs[add_rows::kY], args.inputs[add_rows::kX], bytes,
                                                 cudaMemcpyDeviceToDevice, stream),
                                 "cudaMemcpyAsync"));
    }
    ASSIGN_OR_RETURN(const SortedIndices::Result sorted,
                     sort.Sort(args.input<int32_t>(add_rows::kIndices), args.scratch));
    if (elements == 0) return absl::OkStatus();
    const RowSums<T> sums{sorted, count, args.input<T>(add_rows::kRows), width,
                          RowSums<T>::PiecesAt(args.scratch, sort.scratch_bytes())};
    RETURN_IF_ERROR(LaunchSumPieces(sums, stream));
    WithIndexType(elements, [&]<typename Index>(Index) {
      Launch(AddSums<T, Index>, NumBlocks(elements, kThreads), kThreads, 0, stream, sums, static_cast<Index>(elements),
             static_cast<Index>(width), num_rows, args.output<T>(add_rows::kY));
    });
    return LaunchStatus("AddSums");
  };
  return kernel;
}

template <typename Label, typename T, typename Index>
__global__ void __launch_bounds__(kThreads) WriteOneHot(const Label* indices, Index elements, Index depth, T* y) {
  const Index i = ThreadIndex<Index>();
  if (i >= elements) return;
  y[i] = T(static_cast<int64_t>(indices[i / depth]) == static_cast<int64_t>(i % depth) ? 1.0f : 0.0f);
}

template <typename Label, typename T>
Kernel MakeOneHotOf(const KernelSpec& spec) {
  const int64_t elements = spec.output(0).shape.num_elements(), depth = spec.output(0).shape.dim(-1);
  return {[=, stream = CudaDeviceOf(spec).stream()](const KernelArgs& args) {
    if (elements == 0) return absl::OkStatus();
    WithIndexType(elements, [&]<typename Index>(Index) {
      Launch(WriteOneHot<Label, T, Index>, NumBlocks(elements, kThreads), kThreads, 0, stream, args.input<Label>(0),
             static_cast<Index>(elements), static_cast<Index>(depth), args.output<T>(0));
    });
    return LaunchStatus("WriteOneHot");
  }};
}

absl::StatusOr<Kernel> MakeOneHot(const KernelSpec& spec) {
  return WithStorageType(spec.output(0).dtype, [&]<typename T>(T) {
    return spec.input(0).dtype == DType::kInt32 ? MakeOneHotOf<int32_t, T>(spec) : MakeOneHotOf<int64_t, T>(spec);
  });
}

const bool registered = [] {
  RegisterKernel({.op = op::Gather, .device_kind = "cuda", .dtypes = AllTypes(), .make = MakeGather});
  RegisterKernel(
      {.op = op::IndexedSlices, .device_kind = "cuda", .dtypes = {DType::kInt32}, .make = MakeIndexedSlices});
  RegisterKernel({
      .op = op::AddRows,
      .device_kind = "cuda",
      .dtypes = StorageTypes(),
      .make = ForStorageType([]<typename T>(const KernelSpec& spec, T) { return MakeAddRows<T>(spec); }),
      .in_place = {{add_rows::kY, add_rows::kX}},
  });
  RegisterKernel(
      {.op = op::OneHot, .device_kind = "cuda", .dtypes = {DType::kInt32, DType::kInt64}, .make = MakeOneHot});
  return true;
}();

}  // namespace
}  // namespace official::compute
