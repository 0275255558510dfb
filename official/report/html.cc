#include "official/report/html.h"

#include <cstdint>

namespace official::report {
namespace {

constexpr absl::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// The length of the UTF-8 character at the beginning of `text`, from 2 to 4, or 0 if there is none that XML allows.
size_t CharacterLength(absl::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const size_t length = byte(0) >= 0xF0 ? 4 : byte(0) >= 0xE0 ? 3 : 2;
  if (byte(0) < 0xC2 || byte(0) > 0xF4 || text.size() < length) return 0;
  uint32_t code = byte(0) & (0xFF >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3F);
  }
  constexpr uint32_t kSmallest[] = {0x80, 0x800, 0x10000};  // of each length
  const bool is_surrogate = code >= 0xD800 && code <= 0xDFFF;
  const bool is_control = code < 0xA0 || code == 0xFFFE || code == 0xFFFF;
  return code < kSmallest[length - 2] || code > 0x10FFFF || is_surrogate || is_control ? 0 : length;
}

}  // namespace

std::string Escape(absl::string_view text) {
  std::string escaped;
  while (!text.empty()) {
    const char c = text[0];
    size_t length = 1;
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
    } else if (static_cast<uint8_t>(c) >= 0x80 && CharacterLength(text) > 0) {
      length = CharacterLength(text);
      escaped.append(text.data(), length);
    } else {
      escaped.append(kReplacement.data(), kReplacement.size());
    }
    text.remove_prefix(length);
  }
  return escaped;
}

}  // namespace official::report
