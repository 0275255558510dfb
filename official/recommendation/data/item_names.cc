#include "official/recommendation/data/item_names.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "utils/compute/core/status.h"
#include "utils/files/files.h"
#include "utils/misc/text.h"

namespace official::recommendation {
namespace {

constexpr int64_t kMaxBytes = 64 << 20;

std::string Latin1ToUtf8(absl::string_view text) {
  std::string utf8;
  utf8.reserve(text.size());
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    if (byte < 0x80) {
      utf8.push_back(c);
    } else {
      utf8.push_back(static_cast<char>(0xc0 | byte >> 6));
      utf8.push_back(static_cast<char>(0x80 | (byte & 0x3f)));
    }
  }
  return utf8;
}

// The one that comes first in the line; empty if none does.
absl::string_view FindSeparator(absl::string_view line) {
  absl::string_view found;
  size_t first = absl::string_view::npos;
  for (const absl::string_view separator : {"::", "|", "\t", ","}) {
    const size_t at = line.find(separator);
    if (at < first) {
      first = at;
      found = separator;
    }
  }
  return found;
}

// What stands before the next separator, or in quotes, in which a quote is doubled.
std::string TakeName(absl::string_view text, absl::string_view separator) {
  if (separator != "," || !absl::ConsumePrefix(&text, "\"")) return std::string(text.substr(0, text.find(separator)));
  std::string name;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"' && (i + 1 == text.size() || text[++i] != '"')) break;
    name.push_back(text[i]);
  }
  return name;
}

std::string Printed(std::string name) {
  name.erase(std::remove_if(name.begin(), name.end(), [](unsigned char c) { return absl::ascii_iscntrl(c); }),
             name.end());
  absl::StripAsciiWhitespace(&name);
  return name;
}

}  // namespace

absl::StatusOr<ItemNames> ReadItemNames(const std::string& path) {
  ASSIGN_OR_RETURN(std::string text, files::ReadFile(path, kMaxBytes));
  if (!misc::IsUtf8(text)) text = Latin1ToUtf8(text);
  absl::string_view rest = text;
  absl::ConsumePrefix(&rest, "\xef\xbb\xbf");  // a byte order mark
  ItemNames names;
  absl::string_view separator;
  int64_t line_number = 0;
  bool is_first = true;  // of the lines that are not blank
  for (const absl::string_view line : absl::StrSplit(rest, '\n')) {
    ++line_number;
    if (absl::StripAsciiWhitespace(line).empty()) continue;
    const bool first = std::exchange(is_first, false);
    if (first) separator = FindSeparator(line);
    const size_t end = separator.empty() ? absl::string_view::npos : line.find(separator);
    int32_t item = 0;
    const bool has_number = absl::SimpleAtoi(line.substr(0, end), &item) && item >= 1;
    if (!has_number && first && end != absl::string_view::npos) continue;  // a header
    if (!has_number || end == absl::string_view::npos) {
      return absl::DataLossError(absl::StrFormat(
          "%s line %d: expected the number of an item and its name%s, found \"%s\"", path, line_number,
          separator.empty() ? ", with |, ::, a comma or a tab between them"
                            : absl::StrFormat(", with %s between them", separator == "\t" ? "a tab" : separator),
          absl::Utf8SafeCHexEscape(line.substr(0, 60))));
    }
    names.try_emplace(item, Printed(TakeName(line.substr(end + separator.size()), separator)));
  }
  if (names.empty()) return absl::DataLossError(absl::StrCat(path, " names no items"));
  return names;
}

}  // namespace official::recommendation
