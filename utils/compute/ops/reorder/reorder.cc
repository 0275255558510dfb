#include "utils/compute/ops/reorder/reorder.h"

#include <algorithm>
#include <vector>

#include "utils/compute/core/half.h"
#include "utils/compute/core/status.h"
#include "utils/compute/cpu/onednn.h"
#include "utils/compute/cpu/parallel.h"
#include "utils/compute/graph/op_def.h"

namespace official::compute {
namespace {

Layout LayoutAttr(const Attrs& attrs, absl::string_view name) { return static_cast<Layout>(attrs.GetInt(name)); }

absl::StatusOr<std::vector<TensorType>> Infer(const InferContext& c) {
  if (c.num_inputs() != 1 || c.shape(0).rank() != 4) return c.Error("takes images [N, H, W, C]");
  if (c.shape(0).dim(3) % 16 != 0) return c.Error("channels must be a multiple of 16");
  return SameTypeAsInput(c);
}

// Moves elements of the types that oneDNN 2.6 does not have on CPUs. (float16 moved as bfloat16 would lose its
// denormals where the processor has no AVX-512.)
template <typename T>
Kernel Move(const Shape& images, Layout to) {
  constexpr int64_t kBlock = 16;  // channels of a pixel that kChannelBlocked keeps together
  const int64_t pixels = images.dim(1) * images.dim(2), channels = images.dim(3), blocks = channels / kBlock;
  return {[=, n = images.dim(0)](const KernelArgs& args) {
    const T* const x = args.input<T>(0);
    T* const y = args.output<T>(0);
    ParallelFor(n * blocks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        for (int64_t p = 0; p < pixels; ++p) {
          const int64_t row_major = (i / blocks * pixels + p) * channels + i % blocks * kBlock;
          const int64_t blocked = (i * pixels + p) * kBlock;
          const bool block = to == Layout::kChannelBlocked;
          std::copy_n(x + (block ? row_major : blocked), kBlock, y + (block ? blocked : row_major));
        }
      }
    });
    return absl::OkStatus();
  }};
}

absl::StatusOr<Kernel> Make(const KernelSpec& spec) {
  const TensorType images = spec.input(0);
  const Layout to = LayoutAttr(spec.attrs(), "to");
  switch (images.dtype) {
    case DType::kFloat16:
      return Move<Half>(images.shape, to);
    case DType::kBool:
      return Move<bool>(images.shape, to);
    case DType::kInt32:
      return Move<int32_t>(images.shape, to);
    case DType::kInt64:
      return Move<int64_t>(images.shape, to);
    default:
      break;
  }
  return CatchOnednn("Reorder", [&]() -> absl::StatusOr<Kernel> {
    const OnednnPrimitive reorder =
        OnednnReorder(OnednnImages(images, LayoutAttr(spec.attrs(), "from")), OnednnImages(images, to));
    return Kernel{[reorder](const KernelArgs& args) { return reorder.Run({args.inputs[0], args.outputs[0]}); }};
  });
}

const bool registered_op = RegisterOp({
    .name = op::Reorder,
    .infer = Infer,
    // Seen from outside the values are the same.
    .gradient = [](const Node& node, absl::Span<const Value> dy) { return std::vector<Value>{dy[0]}; },
});
const bool registered_kernel = RegisterKernel({
    .op = op::Reorder,
    .device_kind = "cpu",
    .dtypes = StorageTypesAnd({DType::kUInt8, DType::kBool, DType::kInt32, DType::kInt64}),
    .make = Make,
    .layout =
        [](const Node& node, absl::Span<const Layout>) {
          return LayoutChoice{{LayoutAttr(node.attrs(), "from")}, {LayoutAttr(node.attrs(), "to")}};
        },
});

}  // namespace

Value Reorder(Value images, Layout from, Layout to) {
  return Apply(op::Reorder, {images}, Attrs{{"from", static_cast<int64_t>(from)}, {"to", static_cast<int64_t>(to)}});
}

}  // namespace official::compute
