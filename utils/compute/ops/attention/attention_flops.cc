#include "utils/compute/graph/node_cost.h"
#include "utils/compute/ops/attention/attention.h"

namespace official::compute {
namespace {

// `products` products of the tokens of a sentence with those of another; sentences count as equally long.
double Flops(const Value& queries, const Value& keys, const Value& key_offsets, bool causal, int products) {
  const auto sentences = static_cast<double>(key_offsets.shape().num_elements() - 1);
  const double key_tokens = static_cast<double>(keys.shape().dim(0)) / sentences * (causal ? 0.5 : 1);
  return 2.0 * products * static_cast<double>(queries.shape().num_elements()) * key_tokens;
}

double ForwardFlops(const Node& node) {
  namespace in = attention;
  return Flops(node.input(in::kQ), node.input(in::kK), node.input(in::kKOffsets), node.attrs().GetBool("causal"), 2);
}

double GradFlops(const Node& node) {
  namespace in = attention_grad;
  return Flops(node.input(in::kQ), node.input(in::kK), node.input(in::kKOffsets), node.attrs().GetBool("causal"), 5);
}

const bool registered[] = {
    RegisterFlops(op::Attention, ForwardFlops),
    RegisterFlops(op::AttentionGrad, GradFlops),
};

}  // namespace
}  // namespace official::compute
