// CPU kernels of Concat, Slice and Pad: copies of a box from one array into another.

#include <algorithm>
#include <cstring>
#include <vector>

#include "utils/compute/cpu/parallel.h"
#include "utils/compute/kernel/kernel.h"
#include "utils/compute/ops/array/array.h"
#include "utils/compute/ops/array/moves.h"

namespace official::compute {
namespace {

constexpr int64_t kGrainBytes = 65536;

void Run(const BoxCopy& copy, const void* from, void* to) {
  const char* const source = static_cast<const char*>(from) + copy.from_begin;
  char* const target = static_cast<char*>(to) + copy.to_begin;
  if (copy.run_bytes == 0) return;
  const std::vector<MoveDim>& dims = copy.dims;
  ParallelFor(copy.num_runs(), std::max<int64_t>(1, kGrainBytes / copy.run_bytes), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      int64_t rest = i, from_offset = 0, to_offset = 0;
      for (size_t d = dims.size(); d-- > 0;) {
        from_offset += rest % dims[d].size * dims[d].from;
        to_offset += rest % dims[d].size * dims[d].to;
        rest /= dims[d].size;
      }
      std::memcpy(target + to_offset, source + from_offset, copy.run_bytes);
    }
  });
}

absl::StatusOr<Kernel> MakeCopies(const KernelSpec& spec) {
  return Kernel{[copies = BoxCopiesOf(spec.node)](const KernelArgs& args) {
    for (size_t i = 0; i < copies.size(); ++i) Run(copies[i], args.inputs[i], args.outputs[0]);
    return absl::OkStatus();
  }};
}

absl::StatusOr<Kernel> MakePad(const KernelSpec& spec) {
  return Kernel{[copy = BoxCopiesOf(spec.node)[0], bytes = spec.output(0).num_bytes()](const KernelArgs& args) {
    char* const y = args.output<char>(0);
    ParallelFor(bytes, kGrainBytes, [&](int64_t first, int64_t last) { std::memset(y + first, 0, last - first); });
    Run(copy, args.inputs[0], y);
    return absl::OkStatus();
  }};
}

const bool registered = [] {
  RegisterKernel({.op = op::Concat, .device_kind = "cpu", .dtypes = AllTypes(), .make = MakeCopies});
  RegisterKernel({.op = op::Slice, .device_kind = "cpu", .dtypes = AllTypes(), .make = MakeCopies});
  RegisterKernel({.op = op::Pad, .device_kind = "cpu", .dtypes = AllTypes(), .make = MakePad});
  return true;
}();

}  // namespace
}  // namespace official::compute
