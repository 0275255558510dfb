#include "official/transformer/small_network.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "absl/strings/match.h"

namespace official::transformer {

ModelParams SmallParams() {
  ModelParams params;
  params.vocab_size = 11;
  params.hidden_size = 8;
  params.num_heads = 2;
  params.filter_size = 16;
  params.num_hidden_layers = 2;
  params.layer_postprocess_dropout = params.attention_dropout = params.relu_dropout = 0;
  params.learning_rate_warmup_steps = 4;
  return params;
}

void SetVariables(compute::VariableStore& variables) {
  for (const compute::VariableSpec& spec : variables.specs()) {
    if (!absl::StartsWith(spec.name, kNetworkScope)) continue;
    compute::Tensor value(spec.type);
    for (int64_t i = 0; i < spec.type.shape.num_elements(); ++i) {
      const double wave = 0.3 * std::sin(0.7 * static_cast<double>(i) + static_cast<double>(spec.name.size()));
      value.data<float>()[i] = static_cast<float>(wave + (absl::StrContains(spec.name, "layer_norm_scale") ? 1 : 0));
    }
    REQUIRE(variables.Write(spec.name, value).ok());
  }
}

}  // namespace official::transformer
