#include "utils/compute/ops/matmul/matmul.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/compute/graph/op_def.h"
#include "utils/compute/ops/array/array.h"
#include "utils/compute/ops/matmul/geometry.h"

namespace official::compute {
namespace {

using Types = absl::StatusOr<std::vector<TensorType>>;

TensorType OutputType(const InferContext& c, const MatMulGeometry& g) {
  TensorType type = c.type(matmul::kA);
  type.shape.set_dim(-2, g.m);
  type.shape.set_dim(-1, g.n);
  return type;
}

Types InferMatMul(const InferContext& c) {
  if (c.num_inputs() != 2) return c.Error("takes two matrices");
  ASSIGN_OR_RETURN(const MatMulGeometry g, ResolveMatMul(c));
  return std::vector<TensorType>{OutputType(c, g)};
}

// FusedMatMul(a, b, bias; activation "" or "Relu"), of rank 2.
Types InferFused(const InferContext& c) {
  if (c.num_inputs() != 3) return c.Error("takes two matrices and a bias");
  ASSIGN_OR_RETURN(const MatMulGeometry g, ResolveMatMul(c));
  if (c.shape(matmul::kA).rank() != 2 || c.type(matmul::kBias) != TensorType{c.dtype(matmul::kA), {g.n}}) {
    return c.Error("the bias must have one number per column");
  }
  return std::vector<TensorType>{OutputType(c, g)};
}

// FusedMatMulBiasAddGrad(a, b), of rank 2, b not transposed.
Types InferWithBiasGradient(const InferContext& c) {
  if (c.num_inputs() != 2) return c.Error("takes two matrices");
  ASSIGN_OR_RETURN(const MatMulGeometry g, ResolveMatMul(c));
  if (c.shape(matmul::kA).rank() != 2 || g.transpose_b) return c.Error("sums the rows of a matrix b of rank 2");
  return std::vector<TensorType>{OutputType(c, g), {c.dtype(matmul::kB), {g.n}}};
}

Value Apply(Value a, Value b, bool transpose_a, bool transpose_b) {
  return compute::Apply(op::MatMul, {a, b}, Attrs{{"transpose_a", transpose_a}, {"transpose_b", transpose_b}});
}

std::vector<Value> Gradient(const Node& node, absl::Span<const Value> output_gradients) {
  const Value a = node.input(matmul::kA), b = node.input(matmul::kB), dy = output_gradients[matmul::kY];
  const bool ta = node.attrs().GetBool("transpose_a"), tb = node.attrs().GetBool("transpose_b");
  // y = op(a) op(b): d op(a) = dy op(b)^T and d op(b) = op(a)^T dy, transposed once more where op transposes.
  return {ta ? Apply(b, dy, tb, true) : Apply(dy, b, false, !tb),
          tb ? Apply(dy, a, true, ta) : Apply(a, dy, !ta, false)};
}

const bool registered[] = {
    RegisterOp({.name = op::MatMul, .infer = InferMatMul, .gradient = Gradient}),
    RegisterOp({.name = op::FusedMatMul, .infer = InferFused}),
    RegisterOp({.name = op::FusedMatMulBiasAddGrad, .infer = InferWithBiasGradient}),
};

}  // namespace

Value MatMul(Value a, Value b, const MatMulParams& params) {
  const Shape &shape_a = a.shape(), &shape_b = b.shape();
  if (shape_a.rank() <= 2 || shape_b.rank() != 2 || params.transpose_a) {
    return Apply(a, b, params.transpose_a, params.transpose_b);
  }
  // One matrix for the whole batch: the rows of the batch lie below each other.
  const int64_t k = shape_a.dim(-1);
  const Value y = Apply(Reshape(a, {shape_a.Product(0, shape_a.rank() - 1), k}), b, false, params.transpose_b);
  std::vector<int64_t> result(shape_a.dims().begin(), shape_a.dims().end());
  result.back() = y.shape().dim(-1);
  return Reshape(y, result);
}

}  // namespace official::compute
