#include "utils/compute/graph/node_cost.h"
#include "utils/compute/ops/matmul/geometry.h"
#include "utils/compute/ops/matmul/matmul.h"

namespace official::compute {
namespace {

double Flops(const Node& node) {
  const MatMulGeometry g = MatMulGeometryOf(node);
  return 2.0 * static_cast<double>(g.batch) * static_cast<double>(g.m) * static_cast<double>(g.n) *
         static_cast<double>(g.k);
}

const bool registered[] = {
    RegisterFlops(op::MatMul, Flops),
    RegisterFlops(op::FusedMatMul, Flops),
    RegisterFlops(op::FusedMatMulBiasAddGrad, Flops),
};

}  // namespace
}  // namespace official::compute
