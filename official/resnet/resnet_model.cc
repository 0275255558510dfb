#include "official/resnet/resnet_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "utils/compute/core/status.h"
#include "utils/compute/layers/layers.h"
#include "utils/compute/ops/array/array.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/l2_loss/l2_loss.h"
#include "utils/compute/ops/pooling/pooling.h"
#include "utils/compute/ops/reduction/reduction.h"
#include "utils/compute/ops/softmax/softmax.h"
#include "utils/compute/ops/top_k/top_k.h"
#include "utils/train/class_samples.h"

namespace official::resnet {
namespace {

using compute::DType;
using compute::Layers;
using compute::Padding;
using compute::Value;

constexpr double kBatchNormEpsilon = 1e-5;
constexpr double kMomentum = 0.9;

struct Architecture {
  bool bottleneck = false;
  int first_filters = 16;
  int first_kernel = 3, first_stride = 1;
  bool first_pool = false;
  std::vector<int> blocks;  // of each layer of blocks, the filters of which double
};

const std::map<int, std::vector<int>>& ImagenetBlocks() {
  static const auto* const blocks = new std::map<int, std::vector<int>>{
      {18, {2, 2, 2, 2}},   {34, {3, 4, 6, 3}},   {50, {3, 4, 6, 3}},
      {101, {3, 4, 23, 3}}, {152, {3, 8, 36, 3}}, {200, {3, 24, 36, 3}},
  };
  return *blocks;
}

Architecture ArchitectureOf(DatasetName dataset, int size) {
  if (dataset == DatasetName::kCifar10) {
    const int blocks = (size - 2) / 6;
    return {.blocks = {blocks, blocks, blocks}};
  }
  return {.bottleneck = size >= 50,
          .first_filters = 64,
          .first_kernel = 7,
          .first_stride = 2,
          .first_pool = true,
          .blocks = ImagenetBlocks().at(size)};
}

compute::Initializer KernelInitializer(const compute::Shape& shape) {
  return compute::Initializer::VarianceScaling(shape, 1.0);
}

class Network {
 public:
  Network(const ModelConfig& config, const train::ModelInputs& in)
      : layers_(in.graph, in.dtype, {.scope = "resnet_model/"}),
        version_(config.version),
        training_(in.mode == train::Mode::kTrain),
        synchronized_(config.sync_batch_norm),
        architecture_(ArchitectureOf(config.dataset, config.size)) {}

  // images [N, H, W, 3] -> float32 logits [N, num_classes]
  Value Logits(Value images, DType dtype, int num_classes) {
    const Architecture& a = architecture_;
    Value x = dtype == DType::kFloat32 ? images : compute::Cast(images, dtype);
    x = Convolution(x, a.first_filters, a.first_kernel, a.first_stride);
    if (version_ == 1) x = NormRelu(x);
    if (a.first_pool) x = compute::MaxPool(x, {.window = {3, 3}, .stride = {2, 2}, .padding = Padding::kSame});
    for (size_t i = 0; i < a.blocks.size(); ++i) {
      for (int block = 0; block < a.blocks[i]; ++block) {
        x = Block(x, a.first_filters << i, /*stride=*/i > 0 && block == 0 ? 2 : 1, /*project=*/block == 0);
      }
    }
    if (version_ == 2) x = NormRelu(x);
    if (!x) return x;
    x = layers_.Dense(compute::Mean(x, {1, 2}), num_classes);
    return dtype == DType::kFloat32 ? x : compute::Cast(x, DType::kFloat32);
  }

  const std::vector<compute::MovingAverage>& moving_averages() const { return layers_.moving_averages(); }

 private:
  // With a stride the padding does not depend on the size of the image, unlike TensorFlow's "SAME".
  Value Convolution(Value x, int filters, int kernel, int stride) {
    compute::Conv2DParams window{.stride = {stride, stride}};
    if (stride > 1) {
      const int before = (kernel - 1) / 2, after = kernel - 1 - before;
      window.padding = Padding::kExplicit;
      window.border = {before, after, before, after};
    }
    return layers_.Conv2D(x, filters, {kernel, kernel},
                          {.window = window, .use_bias = false, .kernel_initializer = KernelInitializer});
  }

  Value Norm(Value x) {
    return layers_.BatchNormalization(
        x, {.epsilon = kBatchNormEpsilon, .training = training_, .synchronized = synchronized_});
  }
  Value NormRelu(Value x) { return compute::Relu(Norm(x)); }

  Value Block(Value x, int filters, int stride, bool project) {
    struct Conv {
      int filters, kernel, stride;
    };
    const std::vector<Conv> convs = architecture_.bottleneck
                                        ? std::vector<Conv>{{filters, 1, 1}, {filters, 3, stride}, {4 * filters, 1, 1}}
                                        : std::vector<Conv>{{filters, 3, stride}, {filters, 3, 1}};
    const int outputs = convs.back().filters;
    Value shortcut = x;
    if (version_ == 1) {
      if (project) shortcut = Norm(Convolution(x, outputs, 1, stride));
      for (size_t i = 0; i + 1 < convs.size(); ++i) {
        x = NormRelu(Convolution(x, convs[i].filters, convs[i].kernel, convs[i].stride));
      }
      x = Norm(Convolution(x, outputs, convs.back().kernel, convs.back().stride));
      return compute::Relu(compute::Add(x, shortcut));
    }
    x = NormRelu(x);
    if (project) shortcut = Convolution(x, outputs, 1, stride);
    for (size_t i = 0; i < convs.size(); ++i) {
      if (i > 0) x = NormRelu(x);
      x = Convolution(x, convs[i].filters, convs[i].kernel, convs[i].stride);
    }
    return compute::Add(x, shortcut);
  }

  Layers layers_;
  const int version_;
  const bool training_;
  const bool synchronized_;
  const Architecture architecture_;
};

// CIFAR-10's rule decays all variables, ImageNet's leaves batch normalization out.
Value WeightDecay(const ModelConfig& config, compute::Graph& graph) {
  std::vector<Value> decayed;
  for (const auto& node : graph.nodes()) {
    if (!node->Is(compute::op::Variable) || !graph.variable(*node).trainable) continue;
    if (config.dataset == DatasetName::kImagenet && absl::StrContains(node->name(), "batch_normalization")) continue;
    decayed.push_back(node->output(0));
  }
  const Value factor = graph.Constant(compute::Tensor::Scalar(static_cast<float>(config.weight_decay)));
  return compute::Mul(compute::L2Loss(decayed), factor);
}

// Rounded down; at most 2^62, which no training reaches.
int64_t StepsOf(double epochs, double steps_per_epoch) {
  return static_cast<int64_t>(std::min(epochs * steps_per_epoch, 0x1p62));
}

Value CountCorrect(Value found, Value labels) {
  return compute::Sum(compute::Cast(compute::Equal(found, labels), DType::kFloat32));
}

absl::StatusOr<train::ModelSpec> BuildResnet(const ModelConfig& config, const train::ModelInputs& in) {
  const int num_classes = NumClasses(config);
  train::ModelSpec spec;
  Network network(config, in);
  const Value logits = network.Logits(in.features[0], in.dtype, num_classes);
  const Value classes = compute::ArgMax(logits);
  if (in.mode != train::Mode::kTrain) {
    spec.predictions = {{"classes", classes}, {"probabilities", compute::Softmax(logits)}};
  }
  if (in.mode == train::Mode::kPredict) return spec;
  const Value labels = in.labels[0];
  const Value cross_entropy = compute::Mean(compute::SparseSoftmaxCrossEntropy(logits, labels, config.label_smoothing));
  const Value l2_loss = WeightDecay(config, in.graph);
  spec.loss = compute::Add(cross_entropy, l2_loss);
  if (!spec.loss) return spec;
  const int64_t batch = labels.shape().num_elements();
  const Value count = in.graph.Constant(compute::Tensor::Scalar(static_cast<float>(batch)));
  const Value correct = CountCorrect(compute::Cast(classes, DType::kInt32), labels);
  if (in.mode == train::Mode::kTrain) {
    // Tags as TensorFlow's users know them: name clashes gave them the suffixes.
    spec.logged = {{"cross_entropy", cross_entropy, "cross_entropy_1"}, {"l2_loss", l2_loss}};
    spec.metrics = {{"train_accuracy", correct, count, "train_accuracy_1"}};
    spec.moving_averages = network.moving_averages();
    spec.moving_average_momentum = config.batch_norm_momentum;
    return spec;
  }
  spec.metrics = {{"accuracy", correct, count}};
  if (num_classes > 10) {
    const Value best = compute::TopK(logits, 5).second;
    spec.metrics.push_back({"accuracy_top_5", CountCorrect(best, compute::Reshape(labels, {batch, 1})), count});
  }
  return spec;
}

}  // namespace

const DatasetInfo& InfoOf(DatasetName dataset) {
  static const auto* const cifar10 = new DatasetInfo{.name = "cifar10",
                                                     .title = "CIFAR-10",
                                                     .image_size = 32,
                                                     .num_classes = 10,
                                                     .num_train_examples = 50000,
                                                     .num_eval_examples = 10000,
                                                     .weight_decay = 2e-4,
                                                     .batch_denominator = 128,
                                                     .boundary_epochs = {100, 150, 200},
                                                     .factors = {1, 0.1, 0.01, 0.001}};
  static const auto* const imagenet = new DatasetInfo{.name = "imagenet",
                                                      .title = "ImageNet",
                                                      .image_size = 224,
                                                      .num_classes = 1001,
                                                      .num_train_examples = 1281167,
                                                      .num_eval_examples = 50000,
                                                      .weight_decay = 1e-4,
                                                      .batch_denominator = 256,
                                                      .boundary_epochs = {30, 60, 80, 90},
                                                      .factors = {1, 0.1, 0.01, 0.001, 1e-4}};
  return dataset == DatasetName::kCifar10 ? *cifar10 : *imagenet;
}

train::LearningRateFn LearningRate(DatasetName dataset, const ScheduleConfig& config) {
  OFFICIAL_CHECK(config.factors.size() == config.boundary_epochs.size() + 1) << "one factor more than boundaries";
  const double base = config.base_learning_rate * config.batch_size / InfoOf(dataset).batch_denominator;
  const double step_size = static_cast<double>(config.batch_size) * config.batches_per_step;
  const double steps_per_epoch = static_cast<double>(config.num_train_examples) / step_size;
  std::vector<int64_t> boundaries;
  for (const double epoch : config.boundary_epochs) boundaries.push_back(StepsOf(epoch, steps_per_epoch));
  const int64_t warmup_steps = StepsOf(config.warmup_epochs, steps_per_epoch);
  const auto decay_steps = std::max<int64_t>(1, config.total_steps - warmup_steps);
  return [=, schedule = config.schedule, factors = config.factors](int64_t step) {
    if (step < warmup_steps) return base * static_cast<double>(step) / static_cast<double>(warmup_steps);
    const double done = std::min(1.0, static_cast<double>(step - warmup_steps) / static_cast<double>(decay_steps));
    switch (schedule) {
      case LrSchedule::kPiecewise:
        return base * factors[std::lower_bound(boundaries.begin(), boundaries.end(), step) - boundaries.begin()];
      case LrSchedule::kCosine:
        return base * 0.5 * (1 + std::cos(M_PI * done));
      case LrSchedule::kLinear:
        return base * (1 - done);
      case LrSchedule::kConstant:
        break;
    }
    return base;
  };
}

int NumClasses(const ModelConfig& config) {
  return config.num_classes > 0 ? config.num_classes : InfoOf(config.dataset).num_classes;
}

absl::Status CheckSize(DatasetName dataset, int size) {
  if (dataset == DatasetName::kCifar10) {
    if (size >= 8 && size % 6 == 2) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("a network for cifar10 has 6n + 2 layers: 8, 14, 20, 26, 32, 44, 56, 110, ..., not ", size));
  }
  if (ImagenetBlocks().contains(size)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "a network for imagenet has ",
      absl::StrJoin(ImagenetBlocks(), ", ", [](std::string* out, const auto& s) { absl::StrAppend(out, s.first); }),
      " layers, not ", size));
}

train::EvalSamplesFn ImageSamples(DatasetName dataset, std::vector<std::string> class_names) {
  const int64_t size = InfoOf(dataset).image_size;
  // ImageNet has two classes with the name crane.
  std::map<std::string, int> count;
  for (const std::string& name : class_names) ++count[name];
  for (size_t id = 0; id < class_names.size(); ++id) {
    if (count[class_names[id]] > 1) absl::StrAppend(&class_names[id], " (", id, ")");
  }
  return train::ClassSamples({size, size, 3}, [names = std::move(class_names)](int64_t id) {
    return names.empty() ? absl::StrCat(id) : names.at(id);
  });
}

train::Model ResnetModel(const ModelConfig& config) {
  return {
      .name = "resnet",
      .model_fn = [config](const train::ModelInputs& in) { return BuildResnet(config, in); },
      .optimizer =
          [](const compute::UpdateInputs& inputs, absl::Span<const compute::VariableGradient> variables) {
            return compute::Momentum(inputs, variables, {.momentum = kMomentum});
          },
      .learning_rate = LearningRate(config.dataset, config.schedule),
      .learning_rate_tag = "learning_rate_1",
      .learning_rate_flag = "--base_learning_rate",
      .synchronizes = config.sync_batch_norm,
      .image_feature = 0,
      .eval_samples = ImageSamples(config.dataset, /*class_names=*/{}),
  };
}

}  // namespace official::resnet
