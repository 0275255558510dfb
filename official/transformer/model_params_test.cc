#include "official/transformer/model_params.h"

#include <catch2/catch.hpp>

namespace official::transformer {
namespace {

using Catch::Matchers::Contains;

TEST_CASE("The official parameter sets") {
  const ModelParams base = ParamsOf("base", false).value(), big = ParamsOf("big", false).value();
  CHECK(base == ModelParams());
  CHECK((base.hidden_size == 512 && base.num_heads == 8 && base.filter_size == 2048));
  CHECK((big.hidden_size == 1024 && big.num_heads == 16 && big.filter_size == 4096 && big.default_batch_size == 4096));
  CHECK((big.layer_postprocess_dropout == 0.1 && big.learning_rate_warmup_steps == 16000));
  const ModelParams tiny = ParamsOf("tiny", true).value();
  CHECK((tiny.hidden_size == 32 && tiny.num_heads == 4 && tiny.filter_size == 256 && tiny.num_hidden_layers == 6));
  CHECK(tiny == ParamsOf("tiny", false).value());
  const ModelParams many = ParamsOf("big", true).value();
  CHECK((many.layer_postprocess_dropout == 0.3 && many.learning_rate_warmup_steps == 8000));
  CHECK((ParamsOf("base", true)->layer_postprocess_dropout == 0.1));
  CHECK_THAT(std::string(ParamsOf("huge", false).status().message()),
             Contains("--param_set=huge") && Contains("tiny, base, big"));
}

TEST_CASE("Parameters are overridden by name") {
  ModelParams params;
  REQUIRE(OverrideParams("num_hidden_layers=2, label_smoothing=0,hidden_size=256,", &params).ok());
  CHECK((params.num_hidden_layers == 2 && params.label_smoothing == 0 && params.hidden_size == 256));
  const auto error = [](absl::string_view text) {
    ModelParams params;
    return std::string(OverrideParams(text, &params).message());
  };
  CHECK_THAT(error("layers=2"), Contains("no parameter 'layers'") && Contains("num_hidden_layers"));
  CHECK_THAT(error("num_heads=2.5"), Contains("num_heads=2.5 is not a whole number of at least 1"));
  CHECK_THAT(error("relu_dropout=1"), Contains("relu_dropout=1 is not a number of at least 0 and below 1"));
  CHECK_THAT(error("relu_dropout=nan"), Contains("relu_dropout=nan"));
  CHECK_THAT(error("alpha"), Contains("alpha= is not a number"));
  CHECK_THAT(error("num_heads=7"), Contains("hidden_size 512 is not a multiple of num_heads 7"));
  CHECK_THAT(error("hidden_size=9,num_heads=3"), Contains("hidden_size 9 is odd"));
  // A position signal has two frequencies at least.
  CHECK_THAT(error("hidden_size=2,num_heads=1"), Contains("hidden_size=2 is not a whole number of at least 4"));
  CHECK(error("hidden_size=4,num_heads=1").empty());
}

}  // namespace
}  // namespace official::transformer
