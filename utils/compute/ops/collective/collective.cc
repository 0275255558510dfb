#include "utils/compute/ops/collective/collective.h"

#include <algorithm>
#include <numeric>

#include "utils/compute/graph/op_def.h"

namespace official::compute {
namespace {

absl::StatusOr<std::vector<TensorType>> SameTypesAsInputs(const InferContext& c) {
  std::vector<TensorType> types;
  for (int i = 0; i < c.num_inputs(); ++i) {
    if (c.dtype(i) != DType::kFloat32) return c.Error("needs float32 tensors");
    types.push_back(c.type(i));
  }
  if (types.empty()) return c.Error("needs at least one tensor");
  return types;
}

// The loss is summed over the devices too, so what an input adds to it is what all devices' losses gain by it.
std::vector<Value> StartGradient(const Node& node, absl::Span<const Value> dy) { return AllReduce(dy, 1); }

std::vector<Value> DoneGradient(const Node& node, absl::Span<const Value> dy) {
  std::vector<Value> gradients(dy.begin(), dy.end());
  for (size_t i = 0; i < dy.size(); ++i) {
    // All devices must give a pack of the same size.
    if (!dy[i]) gradients[i] = node.graph().Constant(Tensor(node.output_types()[i]));
  }
  return gradients;
}

// AllReduceStart(pack) gives a pack away; its outputs hold the sums only behind AllReduceDone. AllReduceDone(all that
// was started) waits for the sums. In place where nothing else reads the inputs.
const bool registered[] = {
    RegisterOp({.name = op::AllReduceStart,
                .infer = SameTypesAsInputs,
                .gradient = StartGradient,
                .has_side_effect = true,
                .runs_early = true}),
    RegisterOp(
        {.name = op::AllReduceDone, .infer = SameTypesAsInputs, .gradient = DoneGradient, .has_side_effect = true}),
};

}  // namespace

std::vector<Value> AllReduce(absl::Span<const Value> values, int num_packs) {
  int64_t total = 0;
  for (const Value& v : values) {
    if (!v) return std::vector<Value>(values.size());
    total += v.shape().num_elements();
  }
  std::vector<int> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return values[a].node()->id() < values[b].node()->id(); });

  std::vector<Value> started, pack;
  int64_t elements = 0;
  for (const int i : order) {
    pack.push_back(values[i]);
    elements += values[i].shape().num_elements();
    if (elements * num_packs < total && i != order.back()) continue;
    const Node* const node = ApplyNode(op::AllReduceStart, pack);
    if (node == nullptr) return std::vector<Value>(values.size());
    for (int k = 0; k < node->num_outputs(); ++k) started.push_back(node->output(k));
    pack.clear();
    elements = 0;
  }
  const Node* const done = ApplyNode(op::AllReduceDone, started);
  std::vector<Value> sums(values.size());
  for (size_t k = 0; done != nullptr && k < order.size(); ++k) sums[order[k]] = done->output(static_cast<int>(k));
  return sums;
}

}  // namespace official::compute
