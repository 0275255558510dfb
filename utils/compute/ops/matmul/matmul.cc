#include "utils/compute/ops/matmul/matmul.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/compute/graph/op_def.h"
#include "utils/compute/graph/rewrite.h"
#include "utils/compute/ops/array/array.h"
#include "utils/compute/ops/elementwise/elementwise.h"
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

// Relu(BiasAdd(MatMul)) in two steps: the bias first, then the ReLU behind what that gave.
std::optional<std::vector<Value>> FuseBiasRelu(const Node& node, RewriteContext& context) {
  const bool is_bias = node.Is(op::BiasAdd), is_relu = node.Is(op::Relu);
  if (!is_bias && !is_relu) return std::nullopt;
  const Value input = node.input(0);
  if (input.shape().rank() != 2 || input.node()->num_inputs() == 0 ||
      input.node()->input(0).shape().num_elements() == 0 || context.UseCount(input) != 1 ||
      !context.DeviceHasKernel(op::FusedMatMul, input.dtype())) {
    return std::nullopt;
  }
  const Node& producer = *context.Mapped(input).node();
  std::vector<Value> inputs(producer.inputs().begin(), producer.inputs().end());
  Attrs attrs = producer.attrs();
  if (is_bias && producer.Is(op::MatMul)) {
    inputs.push_back(context.Mapped(node.input(bias_add::kBias)));
    attrs.Set("activation", std::string());
  } else if (is_relu && producer.Is(op::FusedMatMul) && attrs.Get<std::string>("activation").empty()) {
    attrs.Set("activation", std::string("Relu"));
  } else {
    return std::nullopt;
  }
  return std::vector<Value>{OutputOf(context.graph().AddNode(op::FusedMatMul, inputs, attrs), 0)};
}

const bool registered[] = {
    RegisterOp({.name = op::MatMul, .infer = InferMatMul, .gradient = Gradient}),
    RegisterOp({.name = op::FusedMatMul, .infer = InferFused}),
    RegisterFusion({.name = "MatMulBiasRelu", .rule = FuseBiasRelu}),
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
