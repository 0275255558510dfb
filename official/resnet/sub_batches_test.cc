// Devices that each normalize their own share of a batch against one device that normalizes the batch in the same
// parts.

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "official/resnet/resnet_model.h"
#include "utils/compute/core/batch_parts.h"
#include "utils/compute/core/random.h"
#include "utils/compute/core/status.h"
#include "utils/compute/graph/op_def.h"
#include "utils/compute/ops/array/array.h"
#include "utils/compute/ops/batch_norm/batch_norm.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/data/batch.h"
#include "utils/logs/loss_recorder.h"
#include "utils/train/estimator.h"

namespace official::resnet {
namespace {

using compute::Graph;
using compute::Node;
using compute::Tensor;
using compute::Value;

constexpr int kReplicas = 2;

// Copies a graph, with one FusedBatchNorm for each replica's share of the batch in the place of each.
class CopyInShares {
 public:
  explicit CopyInShares(Graph& to) : to_(to) {}
  void Stands(Value old, Value copy) { copies_[old] = copy; }
  Value operator()(Value old) const { return copies_.at(old); }

  void Copy(const Graph& from) {
    for (const auto& node : from.nodes()) {
      if (node->Is(compute::op::Input)) continue;
      if (node->Is(compute::op::Variable)) {
        Stands(node->output(0), to_.Variable(from.variable(*node)));
        continue;
      }
      std::vector<Value> inputs;
      for (const Value& input : node->inputs()) inputs.push_back((*this)(input));
      if (node->Is(compute::op::FusedBatchNorm)) {
        const compute::BatchNormResult result = NormalizeShares(inputs, node->attrs().GetFloat("epsilon"));
        Stands(node->output(0), result.y);
        Stands(node->output(1), result.mean);
        Stands(node->output(2), result.variance);
        ++num_norms_;
        continue;
      }
      Node* const copy = to_.AddNode(node->op().name, inputs, node->attrs(), node->name());
      REQUIRE(copy != nullptr);
      for (int i = 0; i < copy->num_outputs(); ++i) Stands(node->output(i), copy->output(i));
    }
  }
  int num_norms() const { return num_norms_; }

 private:
  // What moving averages take is the mean over the shares.
  compute::BatchNormResult NormalizeShares(const std::vector<Value>& inputs, double epsilon) const {
    const Value x = inputs[0];
    const int64_t batch = x.shape().dim(0);
    std::vector<Value> normalized;
    compute::BatchNormResult result;
    for (int replica = 0; replica < kReplicas; ++replica) {
      const compute::Share share = compute::ShareOf(batch, replica, kReplicas);
      std::vector<int64_t> begin(x.shape().rank(), 0);
      std::vector<int64_t> size(x.shape().dims().begin(), x.shape().dims().end());
      begin[0] = share.begin;
      size[0] = share.size();
      const auto part = compute::FusedBatchNorm(compute::Slice(x, begin, size), inputs[1], inputs[2], epsilon);
      normalized.push_back(part.y);
      const Value weight = to_.Constant(Tensor::Scalar(static_cast<float>(share.size()) / static_cast<float>(batch)));
      const auto add = [&](Value& sum, Value value) {
        const Value weighted = compute::Mul(value, weight);
        sum = sum ? compute::Add(sum, weighted) : weighted;
      };
      add(result.mean, part.mean);
      add(result.variance, part.variance);
    }
    result.y = compute::Concat(normalized, 0);
    return result;
  }

  Graph& to_;
  absl::flat_hash_map<Value, Value> copies_;
  int num_norms_ = 0;
};

// `model`, normalizing in shares when it trains.
train::Model InShares(train::Model model) {
  model.model_fn = [build = model.model_fn](const train::ModelInputs& in) -> absl::StatusOr<train::ModelSpec> {
    if (in.mode != train::Mode::kTrain) return build(in);
    Graph whole;
    const Value images = whole.Input("features", in.features[0].type()),
                labels = whole.Input("labels", in.labels[0].type());
    ASSIGN_OR_RETURN(train::ModelSpec spec, build({whole, in.mode, in.dtype, {images}, {labels}, Value()}));
    CopyInShares copy(in.graph);
    copy.Stands(images, in.features[0]);
    copy.Stands(labels, in.labels[0]);
    copy.Copy(whole);
    CHECK(2 * copy.num_norms() == spec.moving_averages.size());
    spec.loss = copy(spec.loss);
    for (train::NamedValue& logged : spec.logged) logged.value = copy(logged.value);
    for (train::MeanMetric& metric : spec.metrics) {
      metric.total = copy(metric.total);
      metric.count = copy(metric.count);
    }
    for (compute::MovingAverage& average : spec.moving_averages) {
      average = {copy(average.variable), copy(average.value)};
    }
    return spec;
  };
  return model;
}

// Images of CIFAR-10's size: noise around a brightness that is the label's.
data::DatasetPtr Images(int64_t n) {
  Tensor images(compute::DType::kFloat32, {n, 32, 32, 3}), labels(compute::DType::kInt32, {n});
  for (int64_t i = 0; i < n; ++i) {
    const int label = static_cast<int>(i * 7 % 10);
    labels.data<int32_t>()[i] = label;
    for (int64_t p = 0; p < 32 * 32 * 3; ++p) {
      const float noise = compute::UniformFloat(compute::Philox(3, i, p)[0]);
      images.data<float>()[i * 32 * 32 * 3 + p] = noise + static_cast<float>(label) / 10 - 1;
    }
  }
  return data::TensorSlices({{"", images}}, {{"", labels}});
}

struct Trained {
  std::vector<double> losses;
  std::unique_ptr<train::Estimator> estimator;
};

// Three steps of 16, 16 and 13 images.
Trained Train(const train::Model& model, int num_replicas) {
  static int counter = 0;
  train::EstimatorConfig config;
  config.model_dir = absl::StrCat(std::getenv("TEST_TMPDIR"), "/sub_batches-", getpid(), "-", ++counter);
  config.winograd = false;  // two trainings may choose differently
  auto strategy = distribute::Strategy::Create({.num_replicas = num_replicas, .num_threads = num_replicas}).value();
  Trained trained;
  trained.estimator = train::Estimator::Create(model, std::move(config), std::move(strategy)).value();
  std::vector<std::unique_ptr<logs::Hook>> hooks;
  hooks.push_back(std::make_unique<logs::LossRecorder<double>>(trained.losses));
  const auto input = [](data::Position start) { return data::Batches(Images(45), {.batch_size = 16, .start = start}); };
  REQUIRE(trained.estimator->Train(input, std::nullopt, hooks).ok());
  REQUIRE(trained.losses.size() == 3);
  return trained;
}

TEST_CASE("Two replicas equal one device that normalizes each replica's share of the batch by itself") {
  const train::Model model = ResnetModel({.dataset = DatasetName::kCifar10,
                                          .size = 8,
                                          .version = GENERATE(1, 2),
                                          .weight_decay = 2e-4,
                                          .schedule = {.base_learning_rate = 0.1,
                                                       .boundary_epochs = {},
                                                       .factors = {1},
                                                       .batch_size = 16,
                                                       .num_train_examples = 45}});
  const Trained two = Train(model, kReplicas), one = Train(InShares(model), 1), whole = Train(model, 1);
  for (int step = 0; step < 3; ++step) {
    CAPTURE(step);
    CHECK(two.losses[step] == Approx(one.losses[step]).epsilon(1e-5));
    CHECK(two.losses[step] != Approx(whole.losses[step]).epsilon(1e-4));  // statistics of all are something else
  }
  for (const char* layer : {"batch_normalization", "batch_normalization_3", "batch_normalization_6"}) {
    for (const char* part : {"moving_mean", "moving_variance", "gamma", "beta"}) {
      const std::string name = absl::StrCat("resnet_model/", layer, "/", part);
      INFO(name);
      const Tensor x = two.estimator->Variable(name).value(), y = one.estimator->Variable(name).value();
      for (int64_t i = 0; i < x.num_elements(); ++i) {
        CHECK(x.flat<float>()[i] == Approx(y.flat<float>()[i]).epsilon(1e-5).margin(1e-6));
      }
    }
  }
}

}  // namespace
}  // namespace official::resnet
