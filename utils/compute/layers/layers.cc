#include "utils/compute/layers/layers.h"

#include "absl/strings/str_cat.h"
#include "utils/compute/ops/batch_norm/batch_norm.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/matmul/matmul.h"
#include "utils/compute/ops/reduction/reduction.h"

namespace official::compute {
namespace {

Value Activate(Value x, Activation activation) { return activation == Activation::kRelu ? Relu(x) : x; }

}  // namespace

std::string Layers::LayerName(absl::string_view base) {
  const int count = counts_[std::string(base)]++;
  return count == 0 ? absl::StrCat(scope_, base) : absl::StrCat(scope_, base, "_", count);
}

Value Layers::Weight(absl::string_view layer, absl::string_view name, Shape shape, Initializer initializer) {
  const Value variable =
      graph_.Variable({absl::StrCat(layer, "/", name), {DType::kFloat32, std::move(shape)}, initializer});
  return dtype_ == DType::kFloat32 ? variable : Cast(variable, dtype_);
}

Value Layers::Conv2D(Value images, int filters, Size2D kernel, const ConvLayer& layer) {
  if (!images) return images;
  const std::string name = LayerName("conv2d");
  const Shape shape = {kernel.height, kernel.width, images.shape().dim(-1), filters};
  const Value weights = Weight(name, "kernel", shape, layer.kernel_initializer(shape));
  Value y = compute::Conv2D(images, weights, layer.window);
  if (layer.use_bias) y = BiasAdd(y, Weight(name, "bias", {filters}, Initializer::Zeros()));
  return Activate(y, layer.activation);
}

Value Layers::Dense(Value x, int units, Activation activation) {
  if (!x) return x;
  const std::string name = LayerName("dense");
  const Shape shape = {x.shape().dim(-1), units};
  const Value weights = Weight(name, "kernel", shape, Initializer::GlorotUniform(shape));
  const Value bias = Weight(name, "bias", {units}, Initializer::Zeros());
  return Activate(BiasAdd(MatMul(x, weights), bias), activation);
}

Value Layers::BatchNormalization(Value x, const BatchNormLayer& layer) {
  if (!x) return x;
  const std::string name = LayerName("batch_normalization");
  const TensorType type{DType::kFloat32, {x.shape().dim(-1)}};
  const auto variable = [&](const char* part, const Initializer& initializer, bool trainable) {
    return graph_.Variable({absl::StrCat(name, "/", part), type, initializer, trainable});
  };
  const Value gamma = variable("gamma", Initializer::Ones(), true);
  const Value beta = variable("beta", Initializer::Zeros(), true);
  const Value mean = variable("moving_mean", Initializer::Zeros(), false);
  const Value variance = variable("moving_variance", Initializer::Ones(), false);
  if (!layer.training) return FusedBatchNormInference(x, gamma, beta, mean, variance, layer.epsilon);
  const BatchNormResult result = layer.sync_weight ? SyncBatchNorm(x, gamma, beta, layer.sync_weight, layer.epsilon)
                                                   : FusedBatchNorm(x, gamma, beta, layer.epsilon);
  moving_averages_.push_back({mean, result.mean});
  moving_averages_.push_back({variance, result.variance});
  return result.y;
}

}  // namespace official::compute
