// The parameter sets of the official transformer. Source: tensorflow/models official/transformer/model/model_params.py
// at d64bcfe3.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace official::transformer {

struct ModelParams {
  int64_t default_batch_size = 2048;  // tokens
  int64_t max_length = 256;           // ids of a sentence, EOS included
  double initializer_gain = 1.0;
  int64_t vocab_size = 33708;
  int64_t hidden_size = 512;
  int64_t num_hidden_layers = 6;
  int64_t num_heads = 8;
  int64_t filter_size = 2048;
  double layer_postprocess_dropout = 0.1, attention_dropout = 0.1, relu_dropout = 0.1;
  double label_smoothing = 0.1;
  double learning_rate = 2.0;
  int64_t learning_rate_warmup_steps = 16000;
  double optimizer_adam_beta1 = 0.9, optimizer_adam_beta2 = 0.997, optimizer_adam_epsilon = 1e-9;
  int64_t extra_decode_length = 50, beam_size = 4;
  double alpha = 0.6;  // the exponent of the length penalty

  friend bool operator==(const ModelParams&, const ModelParams&) = default;
};

// Returns the names of the sets: "tiny", "base" and "big".
std::vector<std::string> ParamSets();
// Returns the parameters of a set. With several GPUs, base and big have other rates. InvalidArgument, naming the sets,
// if there is none of this name.
absl::StatusOr<ModelParams> ParamsOf(absl::string_view param_set, bool multi_gpu);

// Sets parameters from "name=value,name=value", the names being those of ModelParams. InvalidArgument, naming the
// parameter and what it may be, for an unknown name and for a value that is not a number or out of range.
absl::Status OverrideParams(absl::string_view overrides, ModelParams* params);

// Returns the name and value of each of the parameters.
std::vector<std::pair<std::string, std::variant<int64_t, double>>> NamedParams(const ModelParams& params);

// Returns the parameters in "name=value,name=value" that decide which variables the network has or what they mean, each
// once (the last value), sorted by name.
std::string NetworkPart(absl::string_view overrides);

// Returns "--params_override=num_heads=..." for "num_heads", a parameter that is not a flag; "" for any other name.
std::string ParamsOverrideFor(const std::string& name);

// Returns InvalidArgument if the parameters do not fit each other.
absl::Status CheckParams(const ModelParams& params);

}  // namespace official::transformer
