#include "official/serve/rest_api.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "official/serve/json_tensors.h"
#include "utils/compute/core/check.h"
#include "utils/compute/core/status.h"
#include "utils/misc/text.h"

namespace official::serve {
namespace {

using compute::DType;
using Json = nlohmann::json;

constexpr int kMaxDepth = 64;
constexpr char kDefaultSignature[] = "serving_default";

// The parser keeps a value for each open bracket, and bytes are cheap to send.
bool IsTooDeep(absl::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      i += c == '\\';
      in_string = c != '"';
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxDepth) return true;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}

absl::StatusOr<Json> ParseJson(absl::string_view text) {
  if (IsTooDeep(text)) {
    return absl::InvalidArgumentError(absl::StrCat("JSON Parse error: nested more than ", kMaxDepth, " deep"));
  }
  try {
    return Json::parse(text);
  } catch (const Json::parse_error& error) {
    return absl::InvalidArgumentError(absl::StrCat("JSON Parse error at byte ", error.byte));
  } catch (const Json::out_of_range&) {
    return absl::InvalidArgumentError("JSON Parse error: a number is out of the range of doubles");
  }
}

std::string InputNames(const Signature& signature) {
  return absl::StrJoin(signature.inputs, ", ",
                       [](std::string* out, const TensorInfo& input) { absl::StrAppend(out, input.name); });
}

std::string Quoted(absl::string_view key) { return absl::StrCat("\"", misc::Printable(key), "\""); }

// An object with a value for each input; base64 is a value.
bool IsNamed(const Json& json) { return json.is_object() && !json.contains("b64"); }

absl::Status CheckNames(const Json& object, const Signature& signature, const std::string& where) {
  for (const TensorInfo& input : signature.inputs) {
    if (object.contains(input.name)) continue;
    return absl::InvalidArgumentError(absl::StrCat(where, " has no ", Quoted(input.name), "; the inputs of ",
                                                   signature.name, " are ", InputNames(signature)));
  }
  for (const auto& item : object.items()) {
    const bool known = std::any_of(signature.inputs.begin(), signature.inputs.end(),
                                   [&](const TensorInfo& input) { return input.name == item.key(); });
    if (known) continue;
    return absl::InvalidArgumentError(absl::StrCat(where, " has ", Quoted(item.key()), "; the inputs of ",
                                                   signature.name, " are ", InputNames(signature)));
  }
  return absl::OkStatus();
}

absl::Status CheckIsNamed(const Json& json, const Signature& signature, const std::string& where) {
  if (IsNamed(json)) return CheckNames(json, signature, where);
  return absl::InvalidArgumentError(
      absl::StrCat(where, " needs to be an object with the inputs of ", signature.name, ": ", InputNames(signature)));
}

absl::Status CheckBatch(const Json& list, const std::string& where) {
  if (!list.is_array() || list.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(where, " needs to be a list of at least one example"));
  }
  if (list.size() <= kMaxExamples) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(where, " has ", list.size(), " examples; a request may have ", kMaxExamples));
}

absl::StatusOr<std::vector<Values>> ReadRows(const Json& instances, const Signature& signature) {
  RETURN_IF_ERROR(CheckBatch(instances, "instances"));
  std::vector<Values> examples(instances.size());
  const bool single = signature.inputs.size() == 1;
  for (size_t i = 0; i < instances.size(); ++i) {
    const Json& instance = instances[i];
    const std::string where = absl::StrCat("instances[", i, "]");
    if (single && !IsNamed(instance)) {
      ASSIGN_OR_RETURN(Value value, ValueFromJson(instance, signature.inputs[0], where));
      examples[i].push_back(std::move(value));
      continue;
    }
    RETURN_IF_ERROR(CheckIsNamed(instance, signature, where));
    for (const TensorInfo& input : signature.inputs) {
      ASSIGN_OR_RETURN(Value value, ValueFromJson(instance[input.name], input, absl::StrCat(where, ".", input.name)));
      examples[i].push_back(std::move(value));
    }
  }
  return examples;
}

absl::StatusOr<std::vector<Values>> ReadColumns(const Json& inputs, const Signature& signature) {
  const bool named = signature.inputs.size() > 1 || IsNamed(inputs);
  if (named) RETURN_IF_ERROR(CheckIsNamed(inputs, signature, "inputs"));
  std::vector<Values> examples;
  for (const TensorInfo& input : signature.inputs) {
    const Json& column = named ? inputs[input.name] : inputs;
    const std::string where = named ? absl::StrCat("inputs.", input.name) : "inputs";
    RETURN_IF_ERROR(CheckBatch(column, where));
    if (examples.empty()) examples.resize(column.size());
    if (column.size() != examples.size()) {
      return absl::InvalidArgumentError(absl::StrCat(where, " has ", column.size(), " examples, inputs.",
                                                     signature.inputs[0].name, " has ", examples.size()));
    }
    for (size_t i = 0; i < column.size(); ++i) {
      ASSIGN_OR_RETURN(Value value, ValueFromJson(column[i], input, absl::StrCat(where, "[", i, "]")));
      examples[i].push_back(std::move(value));
    }
  }
  return examples;
}

absl::Status CheckSignatureName(const Json& body, const Signature& signature) {
  const auto name = body.find("signature_name");
  if (name == body.end()) return absl::OkStatus();
  if (!name->is_string()) return absl::InvalidArgumentError("signature_name needs to be a string");
  const auto& text = name->get_ref<const std::string&>();
  if (text.empty() || text == kDefaultSignature || text == signature.name) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("Serving signature name: ", Quoted(text),
                                                 " not found in signature def; there are ", kDefaultSignature, " and ",
                                                 signature.name));
}

void AppendColumn(absl::Span<const Values> predictions, size_t output, std::string& out) {
  out += '[';
  for (size_t i = 0; i < predictions.size(); ++i) {
    if (i > 0) out += ", ";
    AppendJson(predictions[i][output], out);
  }
  out += ']';
}

void AppendKey(absl::string_view key, std::string& out) {
  AppendJsonString(key, out);
  out += ": ";
}

// DT_FLOAT and the like.
std::string DataTypeName(const TensorInfo& tensor) {
  if (!tensor.dtype) return "DT_STRING";
  switch (*tensor.dtype) {
    case DType::kFloat32:
      return "DT_FLOAT";
    case DType::kInt32:
      return "DT_INT32";
    case DType::kInt64:
      return "DT_INT64";
    default:
      OFFICIAL_CHECK(false) << tensor.name;
  }
  return "";
}

nlohmann::ordered_json TensorsJson(absl::Span<const TensorInfo> tensors) {
  nlohmann::ordered_json all = nlohmann::ordered_json::object();
  for (const TensorInfo& tensor : tensors) {
    nlohmann::ordered_json dims = nlohmann::ordered_json::array();
    dims.push_back({{"size", "-1"}, {"name", ""}});
    for (const int64_t dim : tensor.dims) dims.push_back({{"size", absl::StrCat(dim)}, {"name", ""}});
    all[tensor.name] = {{"dtype", DataTypeName(tensor)},
                        {"tensor_shape", {{"dim", std::move(dims)}, {"unknown_rank", false}}},
                        {"name", absl::StrCat(tensor.name, ":0")}};
  }
  return all;
}

}  // namespace

std::optional<Path> ParsePath(absl::string_view target) {
  target = target.substr(0, target.find('?'));
  for (const absl::string_view scheme : {"http://", "https://"}) {
    if (!absl::StartsWithIgnoreCase(target, scheme)) continue;
    target.remove_prefix(scheme.size());
    target.remove_prefix(std::min(target.find('/'), target.size()));
    break;
  }
  if (!absl::ConsumePrefix(&target, "/v1/models/")) return std::nullopt;
  Path path;
  if (absl::ConsumeSuffix(&target, ":predict")) {
    path.method = Method::kPredict;
  } else if (absl::ConsumeSuffix(&target, "/metadata")) {
    path.method = Method::kMetadata;
  }
  const size_t slash = target.find('/');
  path.model = std::string(target.substr(0, slash));
  if (path.model.empty() || absl::StrContains(path.model, ':')) return std::nullopt;
  if (slash == target.npos) return path;
  target.remove_prefix(slash);
  int64_t version = 0;
  if (!absl::ConsumePrefix(&target, "/versions/") || !absl::SimpleAtoi(target, &version)) return std::nullopt;
  path.version = version;
  return path;
}

absl::StatusOr<PredictRequest> ParsePredict(absl::string_view body, const Signature& signature) {
  ASSIGN_OR_RETURN(const Json json, ParseJson(body));
  if (!json.is_object()) return absl::InvalidArgumentError("the request needs to be a JSON object");
  for (const auto& item : json.items()) {
    if (item.key() == "instances" || item.key() == "inputs" || item.key() == "signature_name") continue;
    return absl::InvalidArgumentError(
        absl::StrCat("unknown key ", Quoted(item.key()), "; a request has instances or inputs, and signature_name"));
  }
  RETURN_IF_ERROR(CheckSignatureName(json, signature));
  const bool row = json.contains("instances");
  if (row == json.contains("inputs")) {
    return absl::InvalidArgumentError(row ? "Both 'inputs' and 'instances' are given; a request has one of them"
                                          : "Missing 'inputs' or 'instances' key");
  }
  ASSIGN_OR_RETURN(std::vector<Values> examples,
                   row ? ReadRows(json["instances"], signature) : ReadColumns(json["inputs"], signature));
  return PredictRequest{row ? Format::kRow : Format::kColumn, std::move(examples)};
}

std::string PredictResponse(Format format, const Signature& signature, absl::Span<const Values> predictions) {
  const std::vector<TensorInfo>& outputs = signature.outputs;
  std::string out;
  if (format == Format::kRow) {
    out = "{\n    \"predictions\": [";
    for (size_t i = 0; i < predictions.size(); ++i) {
      absl::StrAppend(&out, i > 0 ? "," : "", "\n        ", outputs.size() > 1 ? "{" : "");
      for (size_t j = 0; j < outputs.size(); ++j) {
        if (j > 0) out += ", ";
        if (outputs.size() > 1) AppendKey(outputs[j].name, out);
        AppendJson(predictions[i][j], out);
      }
      if (outputs.size() > 1) out += '}';
    }
    return absl::StrCat(out, "\n    ]\n}\n");
  }
  out = "{\n    \"outputs\": ";
  if (outputs.size() == 1) {
    AppendColumn(predictions, 0, out);
    return absl::StrCat(out, "\n}\n");
  }
  for (size_t j = 0; j < outputs.size(); ++j) {
    absl::StrAppend(&out, j > 0 ? "," : "{", "\n        ");
    AppendKey(outputs[j].name, out);
    AppendColumn(predictions, j, out);
  }
  return absl::StrCat(out, "\n    }\n}\n");
}

std::string StatusResponse(int64_t version) {
  const nlohmann::ordered_json status = {{"version", absl::StrCat(version)},
                                         {"state", "AVAILABLE"},
                                         {"status", {{"error_code", "OK"}, {"error_message", ""}}}};
  return nlohmann::ordered_json({{"model_version_status", nlohmann::ordered_json::array({status})}}).dump(1) + "\n";
}

std::string MetadataResponse(absl::string_view model, int64_t version, const Signature& signature) {
  const nlohmann::ordered_json def = {{"inputs", TensorsJson(signature.inputs)},
                                      {"outputs", TensorsJson(signature.outputs)},
                                      {"method_name", "tensorflow/serving/predict"}};
  const nlohmann::ordered_json metadata = {
      {"model_spec", {{"name", std::string(model)}, {"signature_name", ""}, {"version", absl::StrCat(version)}}},
      {"metadata", {{"signature_def", {{"signature_def", {{kDefaultSignature, def}, {signature.name, def}}}}}}}};
  return metadata.dump(1) + "\n";
}

std::string ErrorResponse(absl::string_view message) {
  std::string out = "{ \"error\": ";
  AppendJsonString(message, out);
  return absl::StrCat(out, " }\n");
}

int HttpStatus(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return 200;
    case absl::StatusCode::kInvalidArgument:
      return 400;
    case absl::StatusCode::kNotFound:
      return 404;
    case absl::StatusCode::kUnavailable:
      return 503;
    case absl::StatusCode::kDeadlineExceeded:
      return 504;
    default:
      return 500;
  }
}

}  // namespace official::serve
