#include "official/report/python_json.h"

#include <string>

#include "absl/strings/match.h"

namespace official::report {

nlohmann::json ParsePythonJson(absl::string_view text) {
  std::string standard;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string && c == '\\' && i + 1 < text.size()) {
      standard += c;
      standard += text[++i];
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
