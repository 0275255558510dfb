#include "official/recommendation/op/neural_factorization.h"
#include "utils/compute/graph/node_cost.h"

namespace official::recommendation {
namespace {

// Three products with the kernel of each layer, which its bias follows, for each sample.
double LossFlops(const compute::Node& node) {
  const auto samples = static_cast<double>(node.input(0).shape().num_elements());
  double flops = 0;
  for (int i = 0; i + 1 < node.num_inputs(); ++i) {
    const compute::Shape &kernel = node.input(i).shape(), &bias = node.input(i + 1).shape();
    if (kernel.rank() != 2 || bias.rank() != 1 || kernel.dim(1) != bias.dim(0)) continue;
    flops += 2 * 3 * samples * static_cast<double>(kernel.num_elements());
  }
  return flops;
}

const bool registered = compute::RegisterFlops(op::NeuralFactorizationLoss, LossFlops);

}  // namespace
}  // namespace official::recommendation
