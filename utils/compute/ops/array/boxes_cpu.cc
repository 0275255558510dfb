// CPU kernels of Concat, Slice and Pad: copies of a box from one array into another.

#include <algorithm>
#include <cstring>
#include <vector>

#include "utils/compute/cpu/parallel.h"
#include "utils/compute/ops/array/all_types.h"
#include "utils/compute/runtime/kernel.h"

namespace official::compute {
namespace {

constexpr int64_t kGrainBytes = 65536;

// Where a box lies in an array.
struct Place {
  Shape array;
  std::vector<int64_t> begin;
};

// A box as runs of bytes that lie together on both sides.
class BoxCopy {
 public:
  BoxCopy(const Shape& box, const Place& from, const Place& to, int64_t element_bytes) {
    // Dimensions in which the box is as large as both arrays belong to the run.
    int inner = box.rank();
    run_bytes_ = element_bytes;
    while (inner > 0) {
      --inner;
      run_bytes_ *= box.dim(inner);
      if (box.dim(inner) != from.array.dim(inner) || box.dim(inner) != to.array.dim(inner)) break;
    }
    for (int d = 0; d < box.rank(); ++d) {
      const int64_t from_stride = from.array.Product(d + 1, box.rank()) * element_bytes;
      const int64_t to_stride = to.array.Product(d + 1, box.rank()) * element_bytes;
      from_begin_ += from.begin[d] * from_stride;
      to_begin_ += to.begin[d] * to_stride;
      if (d < inner) dims_.push_back({box.dim(d), from_stride, to_stride});
    }
    for (const Dim& d : dims_) runs_ *= d.size;
  }

  void Run(const void* from, void* to) const {
    const char* const source = static_cast<const char*>(from) + from_begin_;
    char* const target = static_cast<char*>(to) + to_begin_;
    if (run_bytes_ == 0) return;
    ParallelFor(runs_, std::max<int64_t>(1, kGrainBytes / run_bytes_), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        int64_t rest = i, from_offset = 0, to_offset = 0;
        for (size_t d = dims_.size(); d-- > 0;) {
          from_offset += rest % dims_[d].size * dims_[d].from_stride;
          to_offset += rest % dims_[d].size * dims_[d].to_stride;
          rest /= dims_[d].size;
        }
        std::memcpy(target + to_offset, source + from_offset, run_bytes_);
      }
    });
  }

 private:
  struct Dim {
    int64_t size, from_stride, to_stride;  // strides in bytes
  };
  std::vector<Dim> dims_;
  int64_t run_bytes_ = 0, runs_ = 1, from_begin_ = 0, to_begin_ = 0;
};

std::vector<int64_t> Zeros(const Shape& shape) { return std::vector<int64_t>(shape.rank(), 0); }

absl::StatusOr<Kernel> MakeConcat(const KernelSpec& spec) {
  const Shape& output = spec.output(0).shape;
  const int64_t axis = spec.attrs().GetInt("axis"), at = axis < 0 ? axis + output.rank() : axis;
  std::vector<BoxCopy> copies;
  Place to{output, Zeros(output)};
  for (int i = 0; i < spec.node.num_inputs(); ++i) {
    const Shape& input = spec.input(i).shape;
    copies.emplace_back(input, Place{input, Zeros(input)}, to, SizeOf(spec.input(i).dtype));
    to.begin[at] += input.dim(static_cast<int>(at));
  }
  return Kernel{[copies](const KernelArgs& args) {
    for (size_t i = 0; i < copies.size(); ++i) copies[i].Run(args.inputs[i], args.outputs[0]);
    return absl::OkStatus();
  }};
}

absl::StatusOr<Kernel> MakeSlice(const KernelSpec& spec) {
  const Shape& output = spec.output(0).shape;
  const BoxCopy copy(output, {spec.input(0).shape, spec.attrs().GetInts("begin")}, {output, Zeros(output)},
                     SizeOf(spec.input(0).dtype));
  return Kernel{[copy](const KernelArgs& args) {
    copy.Run(args.inputs[0], args.outputs[0]);
    return absl::OkStatus();
  }};
}

absl::StatusOr<Kernel> MakePad(const KernelSpec& spec) {
  const TensorType &input = spec.input(0), &output = spec.output(0);
  const std::vector<int64_t>& paddings = spec.attrs().GetInts("paddings");
  std::vector<int64_t> begin;
  for (size_t i = 0; i < paddings.size(); i += 2) begin.push_back(paddings[i]);
  const BoxCopy copy(input.shape, {input.shape, Zeros(input.shape)}, {output.shape, begin}, SizeOf(input.dtype));
  return Kernel{[copy, bytes = output.num_bytes()](const KernelArgs& args) {
    char* const y = args.output<char>(0);
    ParallelFor(bytes, kGrainBytes, [&](int64_t first, int64_t last) { std::memset(y + first, 0, last - first); });
    copy.Run(args.inputs[0], y);
    return absl::OkStatus();
  }};
}

const bool registered = [] {
  RegisterKernel({.op = "Concat", .device_kind = "cpu", .dtypes = AllTypes(), .make = MakeConcat});
  RegisterKernel({.op = "Slice", .device_kind = "cpu", .dtypes = AllTypes(), .make = MakeSlice});
  RegisterKernel({.op = "Pad", .device_kind = "cpu", .dtypes = AllTypes(), .make = MakePad});
  return true;
}();

}  // namespace
}  // namespace official::compute
