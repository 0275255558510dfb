// Layers: ops with their variables, named as tf.layers names them: "conv2d", "conv2d_1", "dense", ... in the order of
// construction. Variables are float32; the computation runs in the type given.
#pragma once

#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "utils/compute/graph/graph.h"
#include "utils/compute/ops/conv/conv.h"

namespace official::compute {

enum class Activation { kNone, kRelu };

class Layers {
 public:
  Layers(Graph& graph, DType dtype) : graph_(graph), dtype_(dtype) {}

  // images [N, H, W, C] -> [N, H', W', filters], with bias. Variables <name>/kernel [h, w, C, filters] and <name>/bias.
  Value Conv2D(Value images, int filters, Size2D kernel, const Conv2DParams& params = {},
               Activation activation = Activation::kNone);
  // x [N, C] -> [N, units], with bias. Variables <name>/kernel [C, units] and <name>/bias.
  Value Dense(Value x, int units, Activation activation = Activation::kNone);

 private:
  // The float32 variable <layer>/<name>, cast to the type of the computation.
  Value Weight(absl::string_view layer, absl::string_view name, Shape shape, Initializer initializer);
  std::string LayerName(absl::string_view base);

  Graph& graph_;
  const DType dtype_;
  absl::flat_hash_map<std::string, int> counts_;
};

}  // namespace official::compute
