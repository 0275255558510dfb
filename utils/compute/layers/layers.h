// Layers: ops with their variables, named as tf.layers names them: "conv2d", "conv2d_1", "dense", ... in the order of
// construction. Variables are float32; the computation runs in the type given.
#pragma once

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "utils/compute/graph/graph.h"
#include "utils/compute/ops/conv/conv.h"
#include "utils/compute/ops/optimizer/optimizer.h"

namespace official::compute {

enum class Activation { kNone, kRelu };

struct ConvLayer {
  Conv2DParams window = {};
  Activation activation = Activation::kNone;
  bool use_bias = true;
  Initializer (*kernel_initializer)(const Shape&) = Initializer::GlorotUniform;
};

struct BatchNormLayer {
  double epsilon = 1e-3;
  bool training = false;  // normalize with the batch's statistics, and gather them in moving_averages()
  // With several devices in training: this device's share of the examples, which makes the statistics those of all of
  // them.
  Value sync_weight = {};
};

class Layers {
 public:
  // `scope` is the prefix of all names, such as "resnet_model/".
  Layers(Graph& graph, DType dtype, absl::string_view scope = "") : graph_(graph), dtype_(dtype), scope_(scope) {}

  // images [N, H, W, C] -> [N, H', W', filters]. Variables <name>/kernel [h, w, C, filters] and <name>/bias.
  Value Conv2D(Value images, int filters, Size2D kernel, const ConvLayer& layer = {});
  // x [N, C] -> [N, units], with bias. Variables <name>/kernel [C, units] and <name>/bias.
  Value Dense(Value x, int units, Activation activation = Activation::kNone);
  // x [..., C], normalized per channel. Variables <name>/gamma, beta, moving_mean and moving_variance, all [C]; they
  // stay float32 in the computation. <name> is batch_normalization, batch_normalization_1, ...
  Value BatchNormalization(Value x, const BatchNormLayer& layer);

  // The moving averages of all BatchNormalization layers so far, which training must update in each step.
  const std::vector<MovingAverage>& moving_averages() const { return moving_averages_; }

 private:
  // The float32 variable <layer>/<name>, cast to the type of the computation.
  Value Weight(absl::string_view layer, absl::string_view name, Shape shape, Initializer initializer);
  std::string LayerName(absl::string_view base);

  Graph& graph_;
  const DType dtype_;
  const std::string scope_;
  std::vector<MovingAverage> moving_averages_;
  absl::flat_hash_map<std::string, int> counts_;
};

}  // namespace official::compute
