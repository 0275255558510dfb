// MatMul in StableHLO.

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "utils/compute/ops/matmul/matmul.h"
#include "utils/compute/pjrt/hlo_emitter.h"

namespace official::compute {
namespace {

// The inputs stay in their type and the products are summed in float32.
void Emit(const Node& node, HloBuilder& hlo) {
  const HloValue a = hlo.In(node.input(matmul::kA)), b = hlo.In(node.input(matmul::kB));
  const int rank = a.shape().rank();
  std::vector<int64_t> batch;
  for (int i = 0; i < rank - 2; ++i) batch.push_back(i);
  const int of_a = node.attrs().GetBool("transpose_a") ? rank - 2 : rank - 1;
  const int of_b = node.attrs().GetBool("transpose_b") ? rank - 1 : rank - 2;
  const std::string batch_dims = absl::StrJoin(batch, ", ");
  const HloType result{hlo::kF32, node.output_types()[matmul::kY].shape};
  hlo.Out(node, matmul::kY,
          hlo.Op("dot_general", {a, b}, result,
                 absl::StrCat("dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [", batch_dims,
                              "], rhs_batching_dimensions = [", batch_dims, "], lhs_contracting_dimensions = [", of_a,
                              "], rhs_contracting_dimensions = [", of_b, "]>, ", kHloExactProducts)));
}

const bool registered = RegisterHloEmitter({.op = op::MatMul, .dtypes = StorageTypes(), .emit = Emit});

}  // namespace
}  // namespace official::compute
