// JSON of somebody else, read so that nothing in it is lost and no text of any size or depth does harm.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace official::distribute {

// Returns the value. InvalidArgument, in one line with the place, for what is not JSON, for a key that an object has
// twice (other parsers keep the last), for more than 1 MiB and for more than 16 levels of objects and lists.
absl::StatusOr<nlohmann::json> ParseStrictJson(absl::string_view text);

// Returns the path of a member, `object.key`, or the key alone if `object` is the root: "". A key that has other
// characters than letters, digits, '_' and '-' is quoted, control characters escaped: `cluster["a b"]`.
std::string JsonPath(absl::string_view object, absl::string_view key);

}  // namespace official::distribute
