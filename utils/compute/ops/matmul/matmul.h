// Matrix multiplication.
#pragma once

#include "utils/compute/graph/graph.h"

namespace official::compute::op {

inline constexpr OpName MatMul("MatMul");
inline constexpr OpName FusedMatMul("FusedMatMul");
inline constexpr OpName FusedMatMulBiasAddGrad("FusedMatMulBiasAddGrad");

}  // namespace official::compute::op

// The inputs and outputs of MatMul, FusedMatMul and FusedMatMulBiasAddGrad. Only FusedMatMul has the bias [N], of the
// type of a, and only FusedMatMulBiasAddGrad the gradient of one: the sum of b's rows, [N].
namespace official::compute::matmul {
enum Input : int { kA, kB, kBias };
enum Output : int { kY, kBiasGradient };
}  // namespace official::compute::matmul

namespace official::compute {

struct MatMulParams {
  bool transpose_a = false, transpose_b = false;
};

// a [..., M, K] (stored [..., K, M] if transpose_a), b [..., K, N] (stored [..., N, K] if transpose_b), one floating
// type -> [..., M, N]. Ranks are 2 to 4. The leading dimensions are the same, or b has rank 2 and multiplies all of a,
// which then must not be transposed.
Value MatMul(Value a, Value b, const MatMulParams& params = {});

}  // namespace official::compute
