#include "utils/misc/text.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

namespace official::misc {
namespace {

constexpr size_t kMaxShown = 200;
constexpr size_t kMaxSuggestions = 3;

// Edit distance in which deleting, inserting, replacing and swapping two neighbouring letters each cost one (the
// "optimal string alignment" distance).
int EditDistance(absl::string_view a, absl::string_view b) {
  std::vector<int> before_last(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
    before_last.swap(last);
    last.swap(row);
  }
  return last[b.size()];
}

}  // namespace

std::string Shorten(absl::string_view text) {
  if (text.size() <= kMaxShown) return std::string(text);
  const size_t half = kMaxShown / 2;
  return absl::StrCat(text.substr(0, half), "...", text.substr(text.size() - half));
}

std::string Printable(absl::string_view value) { return Shorten(absl::Utf8SafeCEscape(value)); }

std::vector<std::string> NearestNames(absl::string_view name, const std::vector<std::string>& known) {
  const std::string wanted = absl::StrReplaceAll(absl::AsciiStrToLower(name), {{"-", "_"}});
  // The distance table of an absurd word would be slow, and no name is like it.
  if (wanted.empty() || wanted.size() > 100) return {};
  std::vector<std::string> nearest;
  int smallest = std::max<int>(1, static_cast<int>(wanted.size()) / 3);
  for (const std::string& candidate : known) {
    const int distance = EditDistance(wanted, candidate);
    if (distance > smallest) continue;
    if (distance < smallest) nearest.clear();
    smallest = distance;
    nearest.push_back(candidate);
  }
  if (nearest.empty() && wanted.size() >= 3) {
    for (const std::string& candidate : known) {
      if (absl::StrContains(candidate, wanted)) nearest.push_back(candidate);
    }
    std::stable_partition(nearest.begin(), nearest.end(),
                          [&](const std::string& candidate) { return absl::StartsWith(candidate, wanted); });
  }
  if (nearest.size() > kMaxSuggestions) nearest.resize(kMaxSuggestions);
  return nearest;
}

size_t Utf8CharacterLength(absl::string_view text) {
  if (text.empty()) return 0;
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  if (byte(0) < 0x80) return 1;
  const size_t length = byte(0) >= 0xF0 ? 4 : byte(0) >= 0xE0 ? 3 : 2;
  if (byte(0) < 0xC2 || byte(0) > 0xF4 || text.size() < length) return 0;
  uint32_t code = byte(0) & (0xFF >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3F);
  }
  constexpr uint32_t kSmallest[] = {0x80, 0x800, 0x10000};  // of each length
  const bool is_surrogate = code >= 0xD800 && code <= 0xDFFF;
  return code < kSmallest[length - 2] || code > 0x10FFFF || is_surrogate ? 0 : length;
}

bool IsUtf8(absl::string_view text) {
  while (!text.empty()) {
    const size_t length = Utf8CharacterLength(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string ReplaceInvalidUtf8(absl::string_view text) {
  std::string valid;
  while (!text.empty()) {
    const size_t length = Utf8CharacterLength(text);
    absl::StrAppend(&valid, length > 0 ? text.substr(0, length) : "\xEF\xBF\xBD");
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return valid;
}

std::string Wrap(absl::string_view text, int indent, int width) {
  const std::string margin(indent, ' ');
  std::string wrapped;
  std::string line;
  for (const absl::string_view word : absl::StrSplit(text, absl::ByAnyChar(" \n"), absl::SkipEmpty())) {
    if (!line.empty() && indent + line.size() + 1 + word.size() > static_cast<size_t>(width)) {
      absl::StrAppend(&wrapped, margin, line, "\n");
      line.clear();
    }
    absl::StrAppend(&line, line.empty() ? "" : " ", word);
  }
  if (!line.empty()) absl::StrAppend(&wrapped, margin, line, "\n");
  return wrapped;
}

}  // namespace official::misc
