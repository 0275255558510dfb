// Fusions that end in products of matrices: bias and ReLU behind one, and the gradients of weights and bias.

#include <optional>
#include <vector>

#include "utils/compute/graph/op_def.h"
#include "utils/compute/graph/rewrite.h"
#include "utils/compute/ops/matmul/matmul.h"
#include "utils/compute/ops/reduction/bias_fusion.h"

namespace official::compute {
namespace {

using Outputs = std::optional<std::vector<Value>>;

Outputs FuseForward(const Node& node, RewriteContext& context) {
  if (node.num_inputs() == 0) return std::nullopt;
  const Value product = node.input(0);
  const bool fits = product.shape().rank() == 2 && product.node()->num_inputs() > 0 &&
                    product.node()->input(0).shape().num_elements() > 0;
  return fits ? FuseBiasRelu(op::MatMul, op::FusedMatMul, node, context) : std::nullopt;
}

// True if the node may be the gradient of a dense layer's weights: x^T dy.
bool IsWeightGradient(const Node& node) {
  const Shape& dy = node.input(matmul::kB).shape();
  return node.attrs().GetBool("transpose_a") && !node.attrs().GetBool("transpose_b") && dy.rank() == 2 &&
         dy.num_elements() > 0 && node.output(matmul::kY).shape().num_elements() > 0;
}

Outputs FuseGradient(const Node& node, RewriteContext& context) {
  static constexpr WeightGradient kGradient = {.op = op::MatMul,
                                               .fused = op::FusedMatMulBiasAddGrad,
                                               .x = matmul::kA,
                                               .dy = matmul::kB,
                                               .weight_gradient = matmul::kY,
                                               .bias_gradient = matmul::kBiasGradient,
                                               .fits = IsWeightGradient};
  return FuseBiasGradient(kGradient, node, context);
}

const bool registered[] = {
    RegisterFusion({.name = "MatMulBiasRelu", .rule = FuseForward}),
    // Behind the kernels that compute the gradient of a bias with more than a product.
    RegisterFusion({.name = "MatMulBiasAddGrad", .phase = 2, .rule = FuseGradient}),
};

}  // namespace
}  // namespace official::compute
