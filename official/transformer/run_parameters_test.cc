#include "official/transformer/run_parameters.h"

#include <catch2/catch.hpp>
#include <map>

#include "absl/strings/str_cat.h"

namespace official::transformer {
namespace {

using Parameters = std::map<std::string, logs::RunParameter>;

std::string Text(const logs::RunParameter& parameter) {
  if (const auto* flag = std::get_if<bool>(&parameter)) return *flag ? "true" : "false";
  if (const auto* integer = std::get_if<int64_t>(&parameter)) return absl::StrCat(*integer);
  if (const auto* number = std::get_if<double>(&parameter)) return absl::StrCat(*number);
  const auto* text = std::get_if<std::string>(&parameter);
  return text == nullptr ? "none" : *text;
}

Parameters Of(const TransformerConfig& config) {
  const auto list = RunParametersOf(config);
  Parameters parameters(list.begin(), list.end());
  CHECK(parameters.size() == list.size());  // each once
  return parameters;
}

TransformerConfig Base() {
  TransformerConfig config;
  config.param_set = "base";
  config.params = ParamsOf("base", /*multi_gpu=*/false).value();
  config.base.data_dir = "/data";
  config.train.model_dir = "/model";
  config.base.epochs_between_evals = 2;
  config.performance.num_parallel_calls = 3;
  return config;
}

// official/transformer/model/model_params.py and what transformer_main.py adds.
TEST_CASE("The record has all parameters of upstream's run, with their types") {
  const Parameters parameters = Of(Base());
  const Parameters expected = {{"allow_ffn_pad", true},
                               {"alpha", 0.6},
                               {"attention_dropout", 0.1},
                               {"beam_size", int64_t{4}},
                               {"data_dir", std::string("/data")},
                               {"default_batch_size", int64_t{2048}},
                               {"default_batch_size_tpu", int64_t{32768}},
                               {"extra_decode_length", int64_t{50}},
                               {"filter_size", int64_t{2048}},
                               {"hidden_size", int64_t{512}},
                               {"initializer_gain", 1.0},
                               {"label_smoothing", 0.1},
                               {"layer_postprocess_dropout", 0.1},
                               {"learning_rate", 2.0},
                               {"learning_rate_decay_rate", 1.0},
                               {"learning_rate_warmup_steps", int64_t{16000}},
                               {"max_length", int64_t{256}},
                               {"model_dir", std::string("/model")},
                               {"num_heads", int64_t{8}},
                               {"num_hidden_layers", int64_t{6}},
                               {"num_parallel_calls", int64_t{3}},
                               {"optimizer_adam_beta1", 0.9},
                               {"optimizer_adam_beta2", 0.997},
                               {"optimizer_adam_epsilon", 1e-9},
                               {"param_set", std::string("base")},
                               {"relu_dropout", 0.1},
                               {"repeat_dataset", int64_t{2}},
                               {"static_batch", false},
                               {"tpu", std::nullopt},
                               {"use_synthetic_data", false},
                               {"use_tpu", false},
                               {"vocab_size", int64_t{33708}}};
  for (const auto& [name, value] : expected) {
    INFO(name);
    REQUIRE(parameters.count(name) == 1);
    CHECK(parameters.at(name).index() == value.index());
    CHECK(Text(parameters.at(name)) == Text(value));
  }
  CHECK(parameters.size() == expected.size());
}

TEST_CASE("With steps instead of epochs the data repeat forever, or as often as the steps of a round need") {
  TransformerConfig config = Base();
  config.train_steps = 10'000'000;
  config.steps_between_evals = kTrainPairs;
  CHECK(Of(config).at("repeat_dataset").index() == 0);
  config.steps_between_evals = kTrainPairs + 1;
  CHECK(std::get<int64_t>(Of(config).at("repeat_dataset")) == 2);
}

}  // namespace
}  // namespace official::transformer
