// Fusions of a bias with what it is added to, for products and convolutions alike: the bias and a ReLU behind one, and
// the gradient of the bias beside that of the weights, which both read the whole output gradient.
#pragma once

#include <optional>
#include <vector>

#include "utils/compute/graph/graph.h"
#include "utils/compute/graph/rewrite.h"

namespace official::compute {

// Rewrites Relu(BiasAdd(op(...))) to `fused`, which has op's inputs, then the bias, op's attributes and "activation",
// "" or "Relu". In two steps: the bias first, then the ReLU behind what that gave.
std::optional<std::vector<Value>> FuseBiasRelu(OpName op, OpName fused, const Node& node, RewriteContext& context);

// A gradient of weights that a fused op computes together with that of the bias.
struct WeightGradient {
  OpName op;
  OpName fused;                        // of op's inputs and attributes
  int x, dy;                           // op's inputs; dy is the output gradient
  int weight_gradient, bias_gradient;  // outputs of `fused`
  bool (*fits)(const Node& node);      // false: `fused` cannot do what this node of `op` does
};

// Rewrites such a gradient of weights and BiasAddGrad of the same dy to one node, when the first of the two is visited;
// the second one then takes its output of that node. Where several gradients of weights have the same dy, only the
// first one and the first bias gradient are a pair. Where an update of a variable between them may change what the
// second one reads, they are none.
std::optional<std::vector<Value>> FuseBiasGradient(const WeightGradient& gradient, const Node& node,
                                                   RewriteContext& context);

}  // namespace official::compute
