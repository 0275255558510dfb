#include "utils/compute/layers/layers.h"

#include "absl/strings/str_cat.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/matmul/matmul.h"
#include "utils/compute/ops/reduction/reduction.h"

namespace official::compute {
namespace {

Value Activate(Value x, Activation activation) { return activation == Activation::kRelu ? Relu(x) : x; }

}  // namespace

std::string Layers::LayerName(absl::string_view base) {
  const int count = counts_[std::string(base)]++;
  return count == 0 ? std::string(base) : absl::StrCat(base, "_", count);
}

Value Layers::Weight(absl::string_view layer, absl::string_view name, Shape shape, Initializer initializer) {
  const Value variable =
      graph_.Variable({absl::StrCat(layer, "/", name), {DType::kFloat32, std::move(shape)}, initializer});
  return dtype_ == DType::kFloat32 ? variable : Cast(variable, dtype_);
}

Value Layers::Conv2D(Value images, int filters, Size2D kernel, const Conv2DParams& params, Activation activation) {
  if (!images) return images;
  const std::string name = LayerName("conv2d");
  const Shape shape = {kernel.height, kernel.width, images.shape().dim(-1), filters};
  const Value weights = Weight(name, "kernel", shape, Initializer::GlorotUniform(shape));
  const Value bias = Weight(name, "bias", {filters}, Initializer::Zeros());
  return Activate(BiasAdd(compute::Conv2D(images, weights, params), bias), activation);
}

Value Layers::Dense(Value x, int units, Activation activation) {
  if (!x) return x;
  const std::string name = LayerName("dense");
  const Shape shape = {x.shape().dim(-1), units};
  const Value weights = Weight(name, "kernel", shape, Initializer::GlorotUniform(shape));
  const Value bias = Weight(name, "bias", {units}, Initializer::Zeros());
  return Activate(BiasAdd(MatMul(x, weights), bias), activation);
}

}  // namespace official::compute
