// Reorder(x; from, to): the same images [N, H, W, C] in another memory layout. The layout planner puts it between
// kernels that want different layouts; `from` and `to` are integers of the enum Layout.

#include <vector>

#include "utils/compute/core/status.h"
#include "utils/compute/cpu/onednn.h"
#include "utils/compute/graph/op_def.h"
#include "utils/compute/runtime/kernel.h"

namespace official::compute {
namespace {

Layout LayoutAttr(const Attrs& attrs, absl::string_view name) { return static_cast<Layout>(attrs.GetInt(name)); }

absl::StatusOr<std::vector<TensorType>> Infer(const InferContext& c) {
  if (c.num_inputs() != 1 || c.shape(0).rank() != 4) return c.Error("takes images [N, H, W, C]");
  if (c.shape(0).dim(3) % 16 != 0) return c.Error("channels must be a multiple of 16");
  return SameTypeAsInput(c);
}

absl::StatusOr<Kernel> Make(const KernelSpec& spec) {
  return CatchOnednn("Reorder", [&]() -> absl::StatusOr<Kernel> {
    TensorType images = spec.input(0);
    // oneDNN 2.6 has no float16 on CPUs; to move its bits any type of their size will do.
    if (images.dtype == DType::kFloat16) images.dtype = DType::kBFloat16;
    const OnednnPrimitive reorder = OnednnReorder(OnednnImages(images, LayoutAttr(spec.attrs(), "from")),
                                                  OnednnImages(images, LayoutAttr(spec.attrs(), "to")));
    return Kernel{[reorder](const KernelArgs& args) { return reorder.Run({args.inputs[0], args.outputs[0]}); }};
  });
}

const bool op = RegisterOp({
    .name = "Reorder",
    .infer = Infer,
    // Seen from outside the values are the same.
    .gradient = [](const Node& node, absl::Span<const Value> dy) { return std::vector<Value>{dy[0]}; },
});
const bool kernel = RegisterKernel({
    .op = "Reorder",
    .device_kind = "cpu",
    .dtypes = StorageTypesAnd({DType::kUInt8}),
    .make = Make,
    .layout =
        [](const Node& node, absl::Span<const Layout>) {
          return LayoutChoice{{LayoutAttr(node.attrs(), "from")}, {LayoutAttr(node.attrs(), "to")}};
        },
});

}  // namespace
}  // namespace official::compute
