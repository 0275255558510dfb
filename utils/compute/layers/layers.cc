#include "utils/compute/layers/layers.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "utils/compute/ops/batch_norm/batch_norm.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/matmul/matmul.h"
#include "utils/compute/ops/reduction/reduction.h"

namespace official::compute {
namespace {

Value Activate(Value x, Activation activation) { return activation == Activation::kRelu ? Relu(x) : x; }

// False for an invalid value, and for a scalar, which fails its graph.
bool HasChannels(Value x, absl::string_view layer) {
  if (!x) return false;
  if (x.shape().rank() > 0) return true;
  x.graph()->Fail(absl::InvalidArgumentError(absl::StrCat(layer, ": needs x [..., C], got ", x.type().ToString())));
  return false;
}

}  // namespace

std::string Layers::LayerName(absl::string_view base) {
  const int count = counts_[std::string(base)]++;
  return count == 0 ? std::string(base) : absl::StrCat(base, "_", count);
}

Value Layers::Variable(absl::string_view name, Shape shape, const Initializer& initializer) {
  return graph_.Variable({absl::StrCat(scope_, name), {DType::kFloat32, std::move(shape)}, initializer});
}

Value Layers::Weight(absl::string_view name, Shape shape, const Initializer& initializer) {
  if (weights_are_given_) {
    return graph_.Variable({absl::StrCat(scope_, name), {dtype_, std::move(shape)}, Initializer::Zeros()});
  }
  const Value variable = Variable(name, std::move(shape), initializer);
  return dtype_ == DType::kFloat32 ? variable : Cast(variable, dtype_);
}

Value Layers::Conv2D(Value images, int filters, Size2D kernel, const ConvLayer& layer) {
  if (!HasChannels(images, "Conv2D")) return Value();
  const std::string name = LayerName("conv2d");
  const Shape shape = {kernel.height, kernel.width, images.shape().dim(-1), filters};
  const Value weights = Weight(name + "/kernel", shape, layer.kernel_initializer(shape));
  Value y = compute::Conv2D(images, weights, layer.window);
  if (layer.use_bias) y = BiasAdd(y, Weight(name + "/bias", {filters}, Initializer::Zeros()));
  return Activate(y, layer.activation);
}

DenseWeights Layers::BuildDense(int64_t channels, int64_t units, const DenseLayer& layer) {
  const std::string name = layer.name.empty() ? LayerName("dense") : std::string(layer.name);
  const Shape shape = {channels, units};
  DenseWeights weights;
  weights.kernel = Weight(name + "/kernel", shape, layer.kernel_initializer(shape));
  if (layer.use_bias) weights.bias = Weight(name + "/bias", {units}, Initializer::Zeros());
  return weights;
}

Value Layers::Dense(Value x, int64_t units, const DenseLayer& layer) {
  if (!HasChannels(x, "Dense")) return Value();
  const DenseWeights weights = BuildDense(x.shape().dim(-1), units, layer);
  Value y = MatMul(x, weights.kernel);
  if (layer.use_bias) y = BiasAdd(y, weights.bias);
  return Activate(y, layer.activation);
}

Value Layers::EmbeddingTable(int64_t rows, int64_t size) {
  const Shape shape = {rows, size};
  return Variable(LayerName("embedding") + "/embeddings", shape, Initializer::GlorotUniform(shape));
}

Value Layers::BatchNormalization(Value x, const BatchNormLayer& layer) {
  if (!HasChannels(x, "BatchNormalization")) return Value();
  const std::string name = LayerName("batch_normalization");
  const TensorType type{DType::kFloat32, {x.shape().dim(-1)}};
  const auto variable = [&](const char* part, const Initializer& initializer, bool trainable) {
    return graph_.Variable({absl::StrCat(scope_, name, "/", part), type, initializer, trainable});
  };
  const Value gamma = variable("gamma", Initializer::Ones(), true);
  const Value beta = variable("beta", Initializer::Zeros(), true);
  const Value mean = variable("moving_mean", Initializer::Zeros(), false);
  const Value variance = variable("moving_variance", Initializer::Ones(), false);
  if (!layer.training) return FusedBatchNormInference(x, gamma, beta, mean, variance, layer.epsilon);
  const StepContext& step = graph_.step_context();
  const BatchNormResult result = layer.synchronized && step.num_replicas > 1
                                     ? SyncBatchNorm(x, gamma, beta, step.weight, layer.epsilon)
                                     : FusedBatchNorm(x, gamma, beta, layer.epsilon);
  moving_averages_.push_back({mean, result.mean});
  moving_averages_.push_back({variance, result.variance});
  return result.y;
}

}  // namespace official::compute
