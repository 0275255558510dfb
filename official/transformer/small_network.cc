#include "official/transformer/small_network.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <string>

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

namespace {

constexpr char kEmbedding[] = "embedding_shared_weights/embedding_and_softmax/weights";

// Changes the elements of a variable from `begin` to before `end`, if there are so many, by `change`.
template <typename Change>
void ChangeElements(compute::VariableStore& variables, const std::string& name, int64_t begin, int64_t end,
                    const Change& change) {
  const compute::Tensor value = variables.Read(kNetworkScope + name).value();
  end = std::min(end, value.num_elements());
  for (int64_t i = begin; i < end; ++i) value.data<float>()[i] = change(value.data<float>()[i]);
  REQUIRE(variables.Write(kNetworkScope + name, value).ok());
}

}  // namespace

void Sharpen(compute::VariableStore& variables, float factor) {
  const int64_t size = variables.Read(std::string(kNetworkScope) + kEmbedding)->shape().dim(1);
  // All but padding and EOS.
  ChangeElements(variables, kEmbedding, 2 * size, std::numeric_limits<int64_t>::max(),
                 [&](float x) { return x * factor; });
}

void SetLogitOfEos(compute::VariableStore& variables, float logit) {
  // What is normalized has the sum 0 before the bias is added.
  const int64_t size = variables.Read(std::string(kNetworkScope) + kEmbedding)->shape().dim(1);
  ChangeElements(variables, "decoder_stack/layer_normalization/layer_norm_bias", 0, size, [](float) { return 1.0f; });
  ChangeElements(variables, kEmbedding, size, 2 * size, [&](float) { return logit / static_cast<float>(size); });
}

}  // namespace official::transformer
