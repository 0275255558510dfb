#include "official/transformer/model_params.h"

#include <limits>
#include <map>

#include "absl/algorithm/container.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "utils/compute/core/status.h"

namespace official::transformer {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Field {
  const char* name;
  std::variant<int64_t ModelParams::*, double ModelParams::*> member;
  double least, below;  // allowed: least <= value < below
};

const std::vector<Field>& Fields() {
  using P = ModelParams;
  static const auto* const fields = new std::vector<Field>{
      {"default_batch_size", &P::default_batch_size, 1, 1 << 30},
      {"max_length", &P::max_length, 2, 1 << 20},
      {"initializer_gain", &P::initializer_gain, 0, kInfinity},
      {"vocab_size", &P::vocab_size, 2, int64_t{1} << 31},
      {"hidden_size", &P::hidden_size, 4, 1 << 20},
      {"num_hidden_layers", &P::num_hidden_layers, 1, 1 << 10},
      {"num_heads", &P::num_heads, 1, 1 << 10},
      {"filter_size", &P::filter_size, 1, 1 << 20},
      {"layer_postprocess_dropout", &P::layer_postprocess_dropout, 0, 1},
      {"attention_dropout", &P::attention_dropout, 0, 1},
      {"relu_dropout", &P::relu_dropout, 0, 1},
      {"label_smoothing", &P::label_smoothing, 0, 1},
      {"learning_rate", &P::learning_rate, 0, kInfinity},
      {"learning_rate_warmup_steps", &P::learning_rate_warmup_steps, 1, int64_t{1} << 40},
      {"optimizer_adam_beta1", &P::optimizer_adam_beta1, 0, 1},
      {"optimizer_adam_beta2", &P::optimizer_adam_beta2, 0, 1},
      {"optimizer_adam_epsilon", &P::optimizer_adam_epsilon, 0, kInfinity},
      {"extra_decode_length", &P::extra_decode_length, 0, 1 << 20},
      {"beam_size", &P::beam_size, 1, 1 << 10},
      {"alpha", &P::alpha, 0, kInfinity},
  };
  return *fields;
}

absl::Status OverrideOne(absl::string_view name, absl::string_view text, ModelParams* params) {
  for (const Field& field : Fields()) {
    if (name != field.name) continue;
    const bool whole = std::holds_alternative<int64_t ModelParams::*>(field.member);
    double number = 0;
    int64_t integer = 0;
    const bool parsed = whole ? absl::SimpleAtoi(text, &integer) : absl::SimpleAtod(text, &number);
    if (whole) number = static_cast<double>(integer);
    if (!parsed || !(number >= field.least && number < field.below)) {
      return absl::InvalidArgumentError(absl::StrCat("--params_override: ", name, "=", text, " is not ",
                                                     whole ? "a whole number" : "a number", " of at least ",
                                                     field.least, " and below ", field.below));
    }
    if (whole) {
      params->*std::get<int64_t ModelParams::*>(field.member) = integer;
    } else {
      params->*std::get<double ModelParams::*>(field.member) = number;
    }
    return absl::OkStatus();
  }
  const std::string names =
      absl::StrJoin(Fields(), ", ", [](std::string* out, const Field& field) { absl::StrAppend(out, field.name); });
  return absl::InvalidArgumentError(
      absl::StrCat("--params_override: there is no parameter '", name, "'; the parameters are ", names));
}

}  // namespace

std::vector<std::string> ParamSets() { return {"tiny", "base", "big"}; }

absl::StatusOr<ModelParams> ParamsOf(absl::string_view param_set, bool multi_gpu) {
  ModelParams params;
  if (param_set == "tiny") {
    params.default_batch_size = 1024;
    params.hidden_size = 32;
    params.num_heads = 4;
    params.filter_size = 256;
    return params;
  }
  if (param_set == "big") {
    params.default_batch_size = 4096;
    params.hidden_size = 1024;
    params.num_heads = 16;
    params.filter_size = 4096;
    if (multi_gpu) params.layer_postprocess_dropout = 0.3;
  } else if (param_set != "base") {
    return absl::InvalidArgumentError(
        absl::StrCat("--param_set=", param_set, " is not one of ", absl::StrJoin(ParamSets(), ", ")));
  }
  if (multi_gpu) params.learning_rate_warmup_steps = 8000;
  return params;
}

absl::Status OverrideParams(absl::string_view overrides, ModelParams* params) {
  for (const absl::string_view item : absl::StrSplit(overrides, ',', absl::SkipWhitespace())) {
    const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(item, absl::MaxSplits('=', 1));
    RETURN_IF_ERROR(
        OverrideOne(absl::StripAsciiWhitespace(parts.first), absl::StripAsciiWhitespace(parts.second), params));
  }
  return CheckParams(*params);
}

std::vector<std::pair<std::string, std::variant<int64_t, double>>> NamedParams(const ModelParams& params) {
  std::vector<std::pair<std::string, std::variant<int64_t, double>>> named;
  for (const Field& field : Fields()) {
    std::visit([&](auto member) { named.emplace_back(field.name, params.*member); }, field.member);
  }
  return named;
}

std::string NetworkPart(absl::string_view overrides) {
  static constexpr absl::string_view kNetwork[] = {"vocab_size", "hidden_size", "num_hidden_layers", "num_heads",
                                                   "filter_size"};
  std::map<absl::string_view, absl::string_view> values;
  for (const absl::string_view item : absl::StrSplit(overrides, ',', absl::SkipWhitespace())) {
    const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(item, absl::MaxSplits('=', 1));
    const absl::string_view name = absl::StripAsciiWhitespace(parts.first);
    if (absl::c_linear_search(kNetwork, name)) values[name] = absl::StripAsciiWhitespace(parts.second);
  }
  return absl::StrJoin(values, ",", absl::PairFormatter("="));
}

std::string ParamsOverrideFor(const std::string& name) {
  for (const Field& field : Fields()) {
    if (name == field.name) return absl::StrCat("--params_override=", name, "=...");
  }
  return "";
}

absl::Status CheckParams(const ModelParams& params) {
  if (params.hidden_size % params.num_heads != 0) {
    return absl::InvalidArgumentError(absl::StrCat("hidden_size ", params.hidden_size,
                                                   " is not a multiple of num_heads ", params.num_heads,
                                                   ", but it is divided evenly among the heads"));
  }
  if (params.hidden_size % 2 != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("hidden_size ", params.hidden_size,
                     " is odd, but the position encoding needs an even one: pairs of sine and cosine"));
  }
  return absl::OkStatus();
}

}  // namespace official::transformer
