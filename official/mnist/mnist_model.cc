#include "official/mnist/mnist_model.h"

#include "absl/strings/str_cat.h"
#include "utils/compute/layers/layers.h"
#include "utils/compute/ops/array/array.h"
#include "utils/compute/ops/dropout/dropout.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/pooling/pooling.h"
#include "utils/compute/ops/reduction/reduction.h"
#include "utils/compute/ops/softmax/softmax.h"
#include "utils/compute/ops/top_k/top_k.h"
#include "utils/train/class_samples.h"

namespace official::mnist {
namespace {

using compute::Activation;
using compute::DType;
using compute::Value;

Value Logits(const ModelConfig& config, const train::ModelInputs& in) {
  const Value images = in.features[0];
  const int64_t batch = images.shape().dim(0);
  compute::Layers layers(in.graph, in.dtype);
  Value x = compute::Reshape(images, {batch, kImageSize, kImageSize, 1});
  if (in.dtype != DType::kFloat32) x = compute::Cast(x, in.dtype);
  for (const int filters : {32, 64}) {
    x = layers.Conv2D(x, filters, {5, 5}, {.activation = Activation::kRelu});
    x = compute::MaxPool(x, {.window = {2, 2}, .stride = {2, 2}, .padding = compute::Padding::kSame});
  }
  if (config.channels_first) x = compute::Transpose(x, {0, 3, 1, 2});
  x = compute::Reshape(x, {batch, x.shape().num_elements() / batch});
  x = layers.Dense(x, 1024, {.activation = Activation::kRelu});
  if (in.mode == train::Mode::kTrain) x = compute::Dropout(x, config.dropout_rate, in.random_state, "dropout");
  x = layers.Dense(x, kNumClasses);
  return in.dtype == DType::kFloat32 ? x : compute::Cast(x, DType::kFloat32);
}

absl::StatusOr<train::ModelSpec> BuildMnist(const ModelConfig& config, const train::ModelInputs& in) {
  train::ModelSpec spec;
  const Value logits = Logits(config, in);
  const Value classes = compute::ArgMax(logits);
  if (in.mode != train::Mode::kTrain) {
    spec.predictions = {{"classes", classes}, {"probabilities", compute::Softmax(logits)}};
  }
  if (in.mode == train::Mode::kPredict) return spec;
  const Value labels = in.labels[0];
  spec.loss = compute::Mean(compute::SparseSoftmaxCrossEntropy(logits, labels));
  const Value correct = compute::Cast(compute::Equal(compute::Cast(classes, DType::kInt32), labels), DType::kFloat32);
  const Value count = in.graph.Constant(compute::Tensor::Scalar(static_cast<float>(labels.shape().num_elements())));
  if (in.mode == train::Mode::kTrain) {
    spec.logged = {{"cross_entropy", spec.loss}};
    // The tag that TensorFlow's users know: a name clash gave it the suffix.
    spec.metrics = {{"train_accuracy", compute::Sum(correct), count, "train_accuracy_1"}};
  } else {
    spec.metrics = {{"accuracy", compute::Sum(correct), count}};
  }
  return spec;
}

}  // namespace

train::Model MnistModel(const ModelConfig& config) {
  return {
      .name = "mnist",
      .model_fn = [config](const train::ModelInputs& in) { return BuildMnist(config, in); },
      .optimizer =
          [](const compute::UpdateInputs& inputs, absl::Span<const compute::VariableGradient> variables) {
            return compute::Adam(inputs, variables, {});
          },
      .learning_rate = [config](int64_t) { return config.learning_rate; },
      .eval_samples =
          train::ClassSamples({kImageSize, kImageSize, 1}, [](int64_t digit) { return absl::StrCat(digit); }),
  };
}

}  // namespace official::mnist
