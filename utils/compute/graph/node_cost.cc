#include "utils/compute/graph/node_cost.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "utils/compute/graph/op_def.h"

namespace official::compute {
namespace {

absl::flat_hash_map<OpName, FlopsFunction>& Registry() {
  static auto* const registry = new absl::flat_hash_map<OpName, FlopsFunction>();
  return *registry;
}

// A node that updates variables, or brings rows of them up to date and hands their numbers on.
bool UpdatesVariables(const Node& node) {
  const auto& outputs = node.output_types();
  const auto is_numbers = [](const TensorType& type) { return type.dtype == DType::kInt32; };
  return node.op().is_update ||
         (node.op().has_side_effect && !outputs.empty() && std::all_of(outputs.begin(), outputs.end(), is_numbers));
}

// The number of rows of tables that the node reads or updates by their numbers; nothing if it takes none. A node that
// updates variables has the numbers among its inputs.
std::optional<int64_t> NumRows(const Node& node, int input) {
  if (const std::optional<int> ids = node.op().row_ids ? node.op().row_ids(node, input) : std::nullopt) {
    return node.input(*ids).shape().num_elements();
  }
  std::optional<int64_t> most;
  if (!UpdatesVariables(node) || node.input(input).shape().rank() == 0) return most;
  for (const Value& v : node.inputs()) {
    if (v.dtype() != DType::kInt32 || v.shape().rank() == 0 || v.node()->Is(op::Variable)) continue;
    most = std::max(most.value_or(0), v.shape().num_elements());
  }
  return most;
}

// A variable that is updated is read and written.
int64_t BytesOfInput(const Node& node, int input) {
  const TensorType& type = node.input(input).type();
  int64_t bytes = type.num_bytes();
  const std::optional<int64_t> num_rows = NumRows(node, input);
  if (num_rows && type.shape.rank() > 0 && type.shape.dim(0) > *num_rows) {
    bytes = bytes / type.shape.dim(0) * *num_rows;
  }
  const bool is_updated = node.op().has_side_effect && node.input(input).node()->Is(op::Variable);
  return is_updated ? 2 * bytes : bytes;
}

}  // namespace

bool RegisterFlops(OpName op, FlopsFunction flops) { return Registry().emplace(op, flops).second; }

std::optional<double> FlopsOf(const Node& node) {
  const auto found = Registry().find(node.op().name);
  if (found == Registry().end()) return std::nullopt;
  return found->second(node);
}

int64_t BytesOf(const Node& node) {
  int64_t bytes = 0;
  absl::flat_hash_set<Value> read;
  for (int i = 0; i < node.num_inputs(); ++i) {
    if (read.insert(node.input(i)).second) bytes += BytesOfInput(node, i);
  }
  for (const TensorType& output : node.output_types()) bytes += output.num_bytes();
  return bytes;
}

}  // namespace official::compute
