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

// Values in the order in which they are computed, cut into packs: the places behind the last value of each.
using PackEnds = std::vector<size_t>;

PackEnds EqualPacks(absl::Span<const Value> values, int num_packs) {
  int64_t total = 0, elements = 0;
  for (const Value& v : values) total += v.shape().num_elements();
  PackEnds ends;
  for (size_t i = 0; i < values.size(); ++i) {
    elements += values[i].shape().num_elements();
    if (elements * num_packs < total && i + 1 < values.size()) continue;
    ends.push_back(i + 1);
    elements = 0;
  }
  return ends;
}

PackEnds PacksOfSizes(absl::Span<const Value> values, const PackSizes& sizes) {
  const auto bytes = [&](size_t i) { return values[i].type().num_bytes(); };
  size_t last = values.size();  // where the last pack begins
  for (int64_t in_last = 0; last > 0; --last) {
    in_last += bytes(last - 1);
    if (in_last > sizes.last_bytes && last < values.size()) break;
  }
  PackEnds ends;
  int64_t in_pack = 0;
  for (size_t i = 0; i < last; ++i) {
    if (i > 0 && in_pack + bytes(i) > sizes.most_bytes) {
      ends.push_back(i);
      in_pack = 0;
    }
    in_pack += bytes(i);
  }
  if (last > 0) ends.push_back(last);
  ends.push_back(values.size());
  return ends;
}

// `packs` returns the PackEnds of values.
template <typename Packs>
std::vector<Value> AllReduceInPacks(absl::Span<const Value> values, Packs packs) {
  if (std::any_of(values.begin(), values.end(), [](const Value& v) { return !v; })) {
    return std::vector<Value>(values.size());
  }
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return values[a].node()->id() < values[b].node()->id(); });
  std::vector<Value> ordered, started;
  for (const size_t i : order) ordered.push_back(values[i]);
  const absl::Span<const Value> all = ordered;
  for (const size_t end : packs(all)) {
    const Node* const node = ApplyNode(op::AllReduceStart, all.subspan(started.size(), end - started.size()));
    if (node == nullptr) return std::vector<Value>(values.size());
    for (int k = 0; k < node->num_outputs(); ++k) started.push_back(node->output(k));
  }
  const Node* const done = ApplyNode(op::AllReduceDone, started);
  std::vector<Value> sums(values.size());
  for (size_t k = 0; done != nullptr && k < order.size(); ++k) sums[order[k]] = done->output(static_cast<int>(k));
  return sums;
}

}  // namespace

std::vector<Value> AllReduce(absl::Span<const Value> values, int num_packs) {
  return AllReduceInPacks(values, [&](absl::Span<const Value> ordered) { return EqualPacks(ordered, num_packs); });
}

std::vector<Value> AllReduce(absl::Span<const Value> values, const PackSizes& sizes) {
  if (sizes.num_packs > 0) return AllReduce(values, sizes.num_packs);
  return AllReduceInPacks(values, [&](absl::Span<const Value> ordered) { return PacksOfSizes(ordered, sizes); });
}

}  // namespace official::compute
