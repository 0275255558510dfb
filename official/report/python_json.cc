#include "official/report/python_json.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace official::report {
namespace {

constexpr size_t kEscapeLength = 6;  // of "\ud83d"

// Whether `text` begins with the escape of a code from `first` to `last`.
bool BeginsWithEscape(absl::string_view text, uint32_t first, uint32_t last) {
  if (!absl::ConsumePrefix(&text, "\\u")) return false;
  const absl::string_view digits = text.substr(0, kEscapeLength - 2);
  uint32_t code;
  return digits.size() == kEscapeLength - 2 && std::all_of(digits.begin(), digits.end(), absl::ascii_isxdigit) &&
         absl::SimpleHexAtoi(digits, &code) && code >= first && code <= last;
}

}  // namespace

nlohmann::json ParsePythonJson(absl::string_view text) {
  std::string standard;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string && c == '\\' && i + 1 < text.size()) {
      const absl::string_view rest = text.substr(i);
      const bool is_pair =
          BeginsWithEscape(rest, 0xD800, 0xDBFF) && BeginsWithEscape(rest.substr(kEscapeLength), 0xDC00, 0xDFFF);
      const bool is_lone = !is_pair && BeginsWithEscape(rest, 0xD800, 0xDFFF);
      const size_t length = is_pair ? 2 * kEscapeLength : is_lone ? kEscapeLength : 2;
      absl::StrAppend(&standard, is_lone ? "\\ufffd" : rest.substr(0, length));
      i += length - 1;
      continue;
    }
    if (c == '"') in_string = !in_string;
    bool replaced = false;
    for (const absl::string_view word : {"NaN", "-Infinity", "Infinity"}) {
      if (in_string || !absl::StartsWith(text.substr(i), word)) continue;
      standard += "null";
      i += word.size() - 1;
      replaced = true;
      break;
    }
    if (!replaced) standard += c;
  }
  return nlohmann::json::parse(standard, nullptr, /*allow_exceptions=*/false);
}

}  // namespace official::report
