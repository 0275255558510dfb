// Values of requests and responses as JSON, in the form of TensorFlow Serving's REST API: a tensor is a list of lists,
// bytes are an object {"b64": "..."}.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "official/serve/servable/servable.h"

namespace official::serve {

// Returns the value of one example for `input`, of its dtype and dims, or the bytes of a base64 object. `where` names
// the place in the request. InvalidArgument, naming the place, what is there and what is needed, if the shape is
// another, a number is not one of the dtype, or the base64 is not valid.
absl::StatusOr<Value> ValueFromJson(const nlohmann::json& json, const TensorInfo& input, const std::string& where);

// Appends the value as JSON. Floats have the fewest digits that read back as the same float.
void AppendJson(const Value& value, std::string& out);

// Appends a JSON string.
void AppendJsonString(absl::string_view text, std::string& out);

}  // namespace official::serve
