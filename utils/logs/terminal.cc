#include "utils/logs/terminal.h"

#include <cstdint>

namespace official::logs {
namespace {

constexpr char32_t kFirstWide = 0x1100;

struct Character {
  size_t bytes;
  int columns;
};

Character FirstCharacter(absl::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  const size_t bytes = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc0 ? 2 : 1;
  if (bytes == 1 || bytes > text.size()) return {1, 1};
  char32_t code = lead & (0xff >> (bytes + 1));
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {1, 1};
    code = code << 6 | (byte(i) & 0x3f);
  }
  return {bytes, code < kFirstWide ? 1 : 2};
}

}  // namespace

int DisplayColumns(absl::string_view text) {
  int columns = 0;
  while (!text.empty()) {
    const Character character = FirstCharacter(text);
    columns += character.columns;
    text.remove_prefix(character.bytes);
  }
  return columns;
}

absl::string_view CutToColumns(absl::string_view text, int columns) {
  size_t end = 0;
  while (end < text.size()) {
    const Character character = FirstCharacter(text.substr(end));
    if (character.columns > columns) break;
    columns -= character.columns;
    end += character.bytes;
  }
  return text.substr(0, end);
}

std::string WithoutControls(absl::string_view text) {
  std::string clean(text);
  for (char& c : clean) {
    if (static_cast<uint8_t>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return clean;
}

}  // namespace official::logs
