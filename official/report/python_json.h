// JSON as Python writes it.
#pragma once

#include <nlohmann/json.hpp>

#include "absl/strings/string_view.h"

namespace official::report {

// Returns the value of a text of JSON, in which NaN, Infinity and -Infinity, which Python writes, become null, and lone
// surrogates, as which it writes bytes that are not UTF-8, become U+FFFD. Text that is not JSON gives a value of the
// type nlohmann::json::value_t::discarded.
nlohmann::json ParsePythonJson(absl::string_view text);

}  // namespace official::report
