#include "utils/compute/program/lowering.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/compute/graph/op_def.h"
#include "utils/compute/program/constant_folding.h"

namespace official::compute {

absl::StatusOr<PlannedLayouts> Lower(const Graph& graph, const GraphRoots& roots, absl::string_view device_kind,
                                     bool fuse) {
  RETURN_IF_ERROR(graph.status());
  const RewriteEnvironment environment{std::string(device_kind), [&](OpName op, DType dtype) {
                                         return KernelRegistry::Global().Find(op, device_kind, dtype) != nullptr;
                                       }};
  RewrittenGraph current =
      Rewrite(graph, roots, environment, [](const Node&, RewriteContext&) { return std::nullopt; });
  const auto apply = [&](const RewriteRule& rule) {
    RewrittenGraph next = Rewrite(*current.graph, current.roots, environment, rule);
    current = std::move(next);
  };
  if (fuse) {
    apply(FoldConstants);
    for (const FusionRule* fusion : AllFusions()) apply(fusion->rule);
  }
  if (const DeviceKind* const kind = FindDeviceKind(device_kind); kind != nullptr && kind->merge) {
    ASSIGN_OR_RETURN(current, kind->merge(current));
  }
  return PlanLayouts(std::move(current), environment, device_kind);
}

bool NeedsKernel(const Node& node) { return !node.op().is_source && !node.op().is_view; }

absl::StatusOr<const KernelDef*> KernelFor(const Node& node, absl::string_view device_kind) {
  const DType type = KeyType(node);
  const KernelDef* const def = KernelRegistry::Global().Find(node.op().name, device_kind, type);
  if (def != nullptr) return def;
  return absl::UnimplementedError(absl::StrCat("op ", node.op().name.text(), " has no kernel for ", DTypeName(type),
                                               " on ", device_kind, " devices"));
}

}  // namespace official::compute
