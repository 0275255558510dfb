// Layers: ops with their variables, named as tf.layers names them: "conv2d", "conv2d_1", "dense", ... in the order of
// construction, or by the model. Variables are float32, unless weights_are_given; the computation runs in the type
// given.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "utils/compute/graph/graph.h"
#include "utils/compute/ops/conv/conv.h"
#include "utils/compute/ops/optimizer/optimizer.h"

namespace official::compute {

enum class Activation { kNone, kRelu };

// Returns the initializer of a variable of this shape, for example Initializer::GlorotUniform.
using InitializerFn = std::function<Initializer(const Shape& shape)>;

struct ConvLayer {
  Conv2DParams window = {};
  Activation activation = Activation::kNone;
  bool use_bias = true;
  InitializerFn kernel_initializer = Initializer::GlorotUniform;
};

struct DenseLayer {
  absl::string_view name = "";  // empty: dense, dense_1, ...; layers that are given the same name share their variables
  Activation activation = Activation::kNone;
  bool use_bias = true;
  InitializerFn kernel_initializer = Initializer::GlorotUniform;
};

// The variables of a dense layer, in the type of the computation.
struct DenseWeights {
  Value kernel;  // [C, units]
  Value bias;    // [units]; invalid without use_bias
};

struct BatchNormLayer {
  double epsilon = 1e-3;
  bool training = false;      // normalize with the batch's statistics, and gather them in moving_averages()
  bool synchronized = false;  // in training on several replicas: the statistics are those of all of them
};

struct LayersOptions {
  absl::string_view scope = "";  // the prefix of all names, such as "resnet_model/"
  // True: kernels, biases and what Weight() makes are variables in the type of the computation instead of float32, and
  // start as zeros. This is for trained values that are written to the variables before the graph runs.
  bool weights_are_given = false;
};

class Layers {
 public:
  // `dtype` is the type of the computation. A second Layers of the same graph and scope counts from the start again, so
  // its layers share the variables of the first one's.
  Layers(Graph& graph, DType dtype, const LayersOptions& options = {})
      : graph_(graph), dtype_(dtype), scope_(options.scope), weights_are_given_(options.weights_are_given) {}

  // images [N, H, W, C] -> [N, H', W', filters]. Variables <name>/kernel [h, w, C, filters] and <name>/bias.
  Value Conv2D(Value images, int filters, Size2D kernel, const ConvLayer& layer = {});
  // x [..., C] -> [..., units]; the rank is 2 to 4. Variables <name>/kernel [C, units] and <name>/bias.
  Value Dense(Value x, int64_t units, const DenseLayer& layer = {});
  // Makes only the variables of Dense, for an x of `channels` channels, as Keras's build() does: for ops that compute
  // several layers at once. The activation is not used.
  DenseWeights BuildDense(int64_t channels, int64_t units, const DenseLayer& layer = {});
  // Returns the variable <name>/embeddings [rows, size] to gather rows from, GlorotUniform at first. It stays float32
  // in the computation. <name> is embedding, embedding_1, ...
  Value EmbeddingTable(int64_t rows, int64_t size);
  // x [..., C], normalized per channel. Variables <name>/gamma, beta, moving_mean and moving_variance, all [C]; they
  // stay float32 in the computation. <name> is batch_normalization, batch_normalization_1, ...
  Value BatchNormalization(Value x, const BatchNormLayer& layer);

  // Returns a float32 variable of the model's own, as tf.get_variable does: the same name gives the same variable.
  Value Variable(absl::string_view name, Shape shape, const Initializer& initializer);
  // Returns such a variable, cast to the type of the computation.
  Value Weight(absl::string_view name, Shape shape, const Initializer& initializer);

  // The moving averages of all BatchNormalization layers so far, which training must update in each step: a model hands
  // them to it as ModelSpec::moving_averages.
  const std::vector<MovingAverage>& moving_averages() const { return moving_averages_; }

 private:
  // Returns `base`, with a number from the second layer of this kind on.
  std::string LayerName(absl::string_view base);

  Graph& graph_;
  const DType dtype_;
  const std::string scope_;
  const bool weights_are_given_;
  std::vector<MovingAverage> moving_averages_;
  absl::flat_hash_map<std::string, int> counts_;
};

}  // namespace official::compute
