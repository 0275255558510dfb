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

// oneDNN 2.6 has no float16 on CPUs, and moved as bfloat16 denormals become 0 where the processor has no AVX-512.
Kernel MoveHalves(const Shape& images, Layout to) {
  constexpr int64_t kBlock = 16;  // channels of a pixel that kChannelBlocked keeps together
  const int64_t pixels = images.dim(1) * images.dim(2), channels = images.dim(3), blocks = channels / kBlock;
  return {[=, n = images.dim(0)](const KernelArgs& args) {
    const Half* const x = args.input<Half>(0);
    Half* const y = args.output<Half>(0);
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
  if (images.dtype == DType::kFloat16) return MoveHalves(images.shape, LayoutAttr(spec.attrs(), "to"));
  return CatchOnednn("Reorder", [&]() -> absl::StatusOr<Kernel> {
    const OnednnPrimitive reorder = OnednnReorder(OnednnImages(images, LayoutAttr(spec.attrs(), "from")),
                                                  OnednnImages(images, LayoutAttr(spec.attrs(), "to")));
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
    .dtypes = StorageTypesAnd({DType::kUInt8}),
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
