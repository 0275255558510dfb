#include "official/recommendation/op/neural_factorization.h"

#include "absl/strings/str_cat.h"
#include "official/recommendation/op/geometry.h"
#include "utils/compute/core/status.h"
#include "utils/compute/graph/op_def.h"
#include "utils/compute/ops/array/array.h"
#include "utils/compute/ops/elementwise/elementwise.h"

namespace official::recommendation {
namespace {

using compute::Attrs;
using compute::DType;
using compute::InferContext;
using compute::Node;
using compute::Shape;
using compute::Tensor;
using compute::TensorType;
using compute::Value;

// Inputs from `first` on: tables and layers, as the attributes say.
absl::Status CheckNetwork(const InferContext& c, int first) {
  const FactorizationGeometry g = GeometryOf(c.attrs, c.inputs, first);
  for (int i = first; i < c.num_inputs(); ++i) {
    if (c.dtype(i) != DType::kFloat32) return c.Error("needs float32 tables and layers");
  }
  if (g.factors == 0 && g.layers.empty()) return c.Error("needs tables");
  if (!ComputesFactorization(c.attrs.Get<DType>("dtype"), static_cast<int>(g.layers.size()) - 1)) {
    return c.Error(absl::StrCat("computes at most ", kMaxFactorizationLayers, " layers, in float32 or bfloat16"));
  }
  const auto fits = [&](int input, Shape shape) { return c.shape(input) == shape; };
  bool fit = true;
  if (g.factors > 0) {
    fit = fits(g.gmf, {g.num_users, g.factors}) && fits(g.gmf + 1, {g.num_items, g.factors});
  }
  int64_t rating_inputs = g.factors;
  if (!g.layers.empty()) {
    const int64_t half = g.layers[0] / 2;
    fit = fit && fits(g.mlp, {g.num_users, half}) && fits(g.mlp + 1, {g.num_items, half});
    for (size_t k = 1; k < g.layers.size(); ++k) {
      fit = fit && fits(g.kernel(k - 1), {g.layers[k - 1], g.layers[k]}) && fits(g.kernel(k - 1) + 1, {g.layers[k]});
    }
    rating_inputs += g.layers.back();
  }
  fit = fit && fits(g.rating, {rating_inputs, 1}) && fits(g.rating + 1, {1});
  return fit ? absl::OkStatus() : c.Error("needs tables and layers that fit together");
}

absl::StatusOr<std::vector<TensorType>> InferScores(const InferContext& c) {
  if (c.num_inputs() < 6 || c.dtype(0) != DType::kInt32 || c.dtype(1) != DType::kInt32 || c.shape(0).rank() != 1 ||
      c.shape(1).rank() != 2 || c.shape(1).dim(0) != c.shape(0).dim(0)) {
    return c.Error("needs int32 users [N] and items [N, C]");
  }
  RETURN_IF_ERROR(CheckNetwork(c, 2));
  return std::vector<TensorType>{{DType::kFloat32, c.shape(1)}};
}

// Outputs: the loss and the gradients of the tables' rows, one for each sample, and of the layers.
absl::StatusOr<std::vector<TensorType>> InferLoss(const InferContext& c) {
  if (c.num_inputs() < 7 || c.dtype(0) != DType::kInt32 || c.shape(0).rank() != 1 || c.shape(0).dim(0) < 1 ||
      c.type(1) != c.type(0) || c.type(2) != TensorType{DType::kFloat32, c.shape(0)}) {
    return c.Error("needs int32 users [N] and items [N] and float32 labels [N]");
  }
  RETURN_IF_ERROR(CheckNetwork(c, 3));
  const FactorizationGeometry g = GeometryOf(c.attrs, c.inputs, 3);
  std::vector<TensorType> types = {{DType::kFloat32, {}}};
  for (int i = 3; i < c.num_inputs(); ++i) {
    types.push_back(c.type(i));
    if (g.IsTable(i)) types.back().shape.set_dim(0, c.shape(0).dim(0));
  }
  return types;
}

// The inputs 0 and 1 are the users and items, whose rows the loss reads of the tables.
std::optional<int> IdsOfTable(const Node& node, int input) {
  const FactorizationGeometry g = GeometryOf(node.attrs(), node.inputs(), 3);
  if (!g.IsTable(input)) return std::nullopt;
  return g.IsOfUsers(input) ? 0 : 1;
}

// True for the gradient that a loss has by itself.
bool IsOne(Value v) {
  return v.node()->Is(compute::op::Constant) && v.shape().rank() == 0 && v.dtype() == DType::kFloat32 &&
         v.node()->attrs().Get<Tensor>("value").scalar<float>() == 1;
}

std::vector<Value> LossGradient(const Node& node, absl::Span<const Value> dy) {
  std::vector<Value> gradients(node.num_inputs());
  if (!dy[0]) return gradients;
  const FactorizationGeometry g = GeometryOf(node.attrs(), node.inputs(), 3);
  for (int i = 3; i < node.num_inputs(); ++i) {
    Value gradient = node.output(i - 2);
    if (!IsOne(dy[0])) gradient = compute::Mul(gradient, dy[0]);
    if (g.IsTable(i)) {
      gradient = compute::IndexedSlices(node.input(*IdsOfTable(node, i)), gradient, node.input(i).shape());
    }
    gradients[i] = gradient;
  }
  return gradients;
}

const bool registered = [] {
  compute::RegisterOp({.name = op::NeuralFactorizationScores, .infer = InferScores, .tolerance = {1e-5}});
  compute::RegisterOp({.name = op::NeuralFactorizationLoss,
                       .infer = InferLoss,
                       .gradient = LossGradient,
                       .row_ids = IdsOfTable,
                       .tolerance = {1e-5}});
  return true;
}();

void AppendNetwork(const NeuralFactorization& network, std::vector<Value>& inputs) {
  if (network.gmf_user) inputs.insert(inputs.end(), {network.gmf_user, network.gmf_item});
  if (network.mlp_user) inputs.insert(inputs.end(), {network.mlp_user, network.mlp_item});
  for (const NeuralFactorization::Layer& layer : network.layers) {
    inputs.insert(inputs.end(), {layer.kernel, layer.bias});
  }
  inputs.insert(inputs.end(), {network.rating.kernel, network.rating.bias});
}

Attrs AttrsOf(const NeuralFactorization& network) {
  return {{"gmf", static_cast<bool>(network.gmf_user)},
          {"mlp", static_cast<bool>(network.mlp_user)},
          {"dtype", network.dtype}};
}

}  // namespace

bool ComputesFactorization(DType dtype, int num_layers) {
  return (dtype == DType::kFloat32 || dtype == DType::kBFloat16) && num_layers <= kMaxFactorizationLayers;
}

Value NeuralFactorizationScores(const NeuralFactorization& network, Value users, Value items, int enough) {
  std::vector<Value> inputs = {users, items};
  AppendNetwork(network, inputs);
  Attrs attrs = AttrsOf(network);
  attrs.Set("enough", int64_t{enough});
  return compute::Apply(op::NeuralFactorizationScores, inputs, attrs);
}

Value NeuralFactorizationLoss(const NeuralFactorization& network, Value users, Value items, Value labels,
                              const FactorizationLoss& loss) {
  std::vector<Value> inputs = {users, items, labels};
  AppendNetwork(network, inputs);
  Attrs attrs = AttrsOf(network);
  attrs.Set("shift", double{loss.shift});
  attrs.Set("limit", double{loss.limit});
  return compute::Apply(op::NeuralFactorizationLoss, inputs, attrs);
}

}  // namespace official::recommendation
