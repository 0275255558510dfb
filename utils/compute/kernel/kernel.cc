#include "utils/compute/kernel/kernel.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "utils/compute/graph/op_def.h"

namespace official::compute {

DType KeyType(const Node& node) { return node.num_inputs() > 0 ? node.input(0).dtype() : node.output_types()[0].dtype; }

std::string KernelLine(const Node& node, absl::FunctionRef<std::string(const Value&)> type_text) {
  const auto describe = [&](std::string* out, const Value& v) {
    absl::StrAppend(out, v.node()->name(), ":", v.index(), " ", type_text(v));
  };
  std::vector<Value> outputs;
  for (int i = 0; i < node.num_outputs(); ++i) outputs.push_back(node.output(i));
  return absl::StrCat(node.op().name.text(), "(", absl::StrJoin(node.inputs(), ", ", describe), ") -> ",
                      absl::StrJoin(outputs, ", ", describe), "\n");
}

KernelRegistry& KernelRegistry::Global() {
  static auto* registry = new KernelRegistry;
  return *registry;
}

void KernelRegistry::Add(KernelDef def) {
  for (const DType dtype : def.dtypes) {
    OFFICIAL_CHECK(Find(def.op, def.device_kind, dtype) == nullptr)
        << def.op << " has two kernels for " << def.device_kind << " and " << DTypeName(dtype);
  }
  defs_.push_back(std::make_unique<KernelDef>(std::move(def)));
}

const KernelDef* KernelRegistry::Find(OpName op, absl::string_view device_kind, DType dtype) const {
  for (const auto& def : defs_) {
    if (def->op == op && def->device_kind == device_kind &&
        std::find(def->dtypes.begin(), def->dtypes.end(), dtype) != def->dtypes.end()) {
      return def.get();
    }
  }
  return nullptr;
}

std::vector<const KernelDef*> KernelRegistry::All() const {
  std::vector<const KernelDef*> all;
  for (const auto& def : defs_) all.push_back(def.get());
  std::sort(all.begin(), all.end(), [](const KernelDef* a, const KernelDef* b) {
    return std::tie(a->op, a->device_kind) < std::tie(b->op, b->device_kind);
  });
  return all;
}

bool RegisterKernel(KernelDef def) {
  KernelRegistry::Global().Add(std::move(def));
  return true;
}

LayoutChoice AllRowMajor(const Node& node) {
  return {std::vector<Layout>(node.num_inputs(), Layout::kRowMajor),
          std::vector<Layout>(node.num_outputs(), Layout::kRowMajor)};
}

LayoutChoice SameLayoutEverywhere(const Node& node, absl::Span<const Layout> current) {
  LayoutChoice choice = AllRowMajor(node);
  const Shape& shape = node.output_types()[0].shape;
  bool blocked = false;
  for (int i = 0; i < node.num_inputs(); ++i) {
    const Shape& input = node.input(i).shape();
    if (input != shape && input.num_elements() != 1) return choice;  // broadcasting follows the logical order
    blocked |= input == shape && current[i] == Layout::kChannelBlocked;
  }
  if (!blocked) return choice;
  for (int i = 0; i < node.num_inputs(); ++i) {
    if (node.input(i).shape() == shape) choice.inputs[i] = Layout::kChannelBlocked;
  }
  std::fill(choice.outputs.begin(), choice.outputs.end(), Layout::kChannelBlocked);
  return choice;
}

}  // namespace official::compute
