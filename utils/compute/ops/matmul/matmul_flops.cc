#include <cmath>

#include "utils/compute/graph/node_cost.h"
#include "utils/compute/ops/matmul/matmul.h"

namespace official::compute {
namespace {

// The matrices have m * k, k * n and m * n elements.
double Flops(const Node& node) {
  const auto elements = [](const Value& v) { return static_cast<double>(v.shape().num_elements()); };
  return 2 * std::sqrt(elements(node.input(matmul::kA)) * elements(node.input(matmul::kB)) *
                       elements(node.output(matmul::kY)));
}

const bool registered[] = {
    RegisterFlops(op::MatMul, Flops),
    RegisterFlops(op::FusedMatMul, Flops),
    RegisterFlops(op::FusedMatMulBiasAddGrad, Flops),
};

}  // namespace
}  // namespace official::compute
