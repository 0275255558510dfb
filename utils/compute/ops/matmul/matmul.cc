#include "utils/compute/ops/matmul/matmul.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/compute/graph/may_move.h"
#include "utils/compute/graph/op_def.h"
#include "utils/compute/graph/rewrite.h"
#include "utils/compute/ops/array/array.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/matmul/geometry.h"
#include "utils/compute/ops/reduction/reduction.h"

namespace official::compute {
namespace {

using Types = absl::StatusOr<std::vector<TensorType>>;

using Outputs = std::optional<std::vector<Value>>;

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

// Relu(BiasAdd(MatMul)) in two steps: the bias first, then the ReLU behind what that gave.
Outputs FuseBiasRelu(const Node& node, RewriteContext& context) {
  const bool is_bias = node.Is(op::BiasAdd), is_relu = node.Is(op::Relu);
  if (!is_bias && !is_relu) return std::nullopt;
  const Value input = node.input(0);
  if (input.shape().rank() != 2 || input.node()->num_inputs() == 0 ||
      input.node()->input(0).shape().num_elements() == 0 || context.UseCount(input) != 1 ||
      !context.DeviceHasKernel(op::FusedMatMul, input.dtype())) {
    return std::nullopt;
  }
  const Node& producer = *context.Mapped(input).node();
  if (!MayMoveToEnd(producer)) return std::nullopt;
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

// True if the node is the gradient of a dense layer's weights, from that of its outputs, dy.
bool IsWeightGradient(const Node& node, Value dy) {
  return node.Is(op::MatMul) && node.input(matmul::kB) == dy && node.attrs().GetBool("transpose_a") &&
         !node.attrs().GetBool("transpose_b") && dy.shape().rank() == 2 && dy.shape().num_elements() > 0 &&
         node.output(matmul::kY).shape().num_elements() > 0;
}

// MatMul(x^T, dy) and BiasAddGrad(dy) become one node when the first of the two is visited; the second one then takes
// its output of that node.
Outputs FuseBiasGradient(const Node& node, RewriteContext& context) {
  const bool is_bias = node.Is(op::BiasAddGrad);
  if (!is_bias && !node.Is(op::MatMul)) return std::nullopt;
  const Value dy = is_bias ? node.input(0) : node.input(matmul::kB);
  if (!context.DeviceHasKernel(op::FusedMatMulBiasAddGrad, dy.dtype())) return std::nullopt;
  const Node *weights = nullptr, *bias = nullptr;
  for (const Node* reader : context.Readers(dy)) {
    if (weights == nullptr && IsWeightGradient(*reader, dy)) weights = reader;
    if (bias == nullptr && reader->Is(op::BiasAddGrad)) bias = reader;
  }
  if (weights == nullptr || bias == nullptr || &node != (is_bias ? bias : weights)) return std::nullopt;
  const int output = is_bias ? matmul::kBiasGradient : matmul::kY;
  const Node& partner = is_bias ? *weights : *bias;
  if (partner.id() < node.id()) {
    Node* const fused = context.Mapped(partner.output(0)).node();
    return fused->Is(op::FusedMatMulBiasAddGrad) ? Outputs({fused->output(output)}) : std::nullopt;
  }
  const Value x = weights->input(matmul::kA);
  if (x.node()->id() > node.id()) return std::nullopt;  // it does not exist yet
  Node* const fused =
      context.graph().AddNode(op::FusedMatMulBiasAddGrad, {context.Mapped(x), context.Mapped(dy)}, weights->attrs());
  return std::vector<Value>{OutputOf(fused, output)};
}

const bool registered[] = {
    RegisterOp({.name = op::MatMul, .infer = InferMatMul, .gradient = Gradient}),
    RegisterOp({.name = op::FusedMatMul, .infer = InferFused}),
    RegisterOp({.name = op::FusedMatMulBiasAddGrad, .infer = InferWithBiasGradient}),
    RegisterFusion({.name = "MatMulBiasRelu", .rule = FuseBiasRelu}),
    // Behind the kernels that compute the gradient of a bias with more than a product.
    RegisterFusion({.name = "MatMulBiasAddGrad", .phase = 2, .rule = FuseBiasGradient}),
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
