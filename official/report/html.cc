#include "official/report/html.h"

#include <algorithm>
#include <cstdint>

#include "utils/misc/text.h"

namespace official::report {
namespace {

// Whether `character`, of several bytes, is a control (U+0080 to U+009F) or what XML does not allow (U+FFFE, U+FFFF).
bool IsNotShown(absl::string_view character) {
  if (character.size() == 2) return character[0] == '\xC2' && static_cast<uint8_t>(character[1]) < 0xA0;
  return character == "\xEF\xBF\xBE" || character == "\xEF\xBF\xBF";
}

}  // namespace

std::string Escape(absl::string_view text) {
  std::string escaped;
  while (!text.empty()) {
    const char c = text[0];
    const size_t length = misc::Utf8CharacterLength(text);
    if (c == '&') {
      escaped += "&amp;";
    } else if (c == '<') {
      escaped += "&lt;";
    } else if (c == '>') {
      escaped += "&gt;";
    } else if (c == '"') {
      escaped += "&quot;";
    } else if (c == '\'') {
      escaped += "&#39;";
    } else if ((c >= 0x20 && c < 0x7F) || c == '\n' || c == '\t') {
      escaped += c;
    } else if (length > 1 && !IsNotShown(text.substr(0, length))) {
      escaped.append(text.data(), length);
    } else {
      escaped += "\xEF\xBF\xBD";  // U+FFFD
    }
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return escaped;
}

}  // namespace official::report
