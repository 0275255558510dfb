#include "official/transformer/text/tokens.h"

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "official/transformer/text/unicode.h"

namespace official::transformer {
namespace {

bool BeginsAlphanumeric(absl::string_view token) {
  size_t i = 0;
  return IsAlphanumeric(NextCharacter(token, &i));
}

bool IsSurrogate(uint32_t number) { return number >= 0xd800 && number < 0xe000; }

// Appends the character whose decimal number stands in `digits`. Python's chr gives surrogates too, which UTF-8 cannot
// hold.
void AppendNumbered(absl::string_view digits, std::string* text) {
  constexpr char32_t kNoCharacter = 0x3013;
  uint32_t number;
  const bool valid = absl::SimpleAtoi(digits, &number) && number <= 0x10ffff && !IsSurrogate(number);
  AppendCharacter(valid ? number : kNoCharacter, text);
}

}  // namespace

std::vector<absl::string_view> SplitIntoTokens(absl::string_view text) {
  std::vector<absl::string_view> tokens;
  if (text.empty()) return tokens;
  size_t begin = 0;
  bool was_alphanumeric = BeginsAlphanumeric(text);
  for (size_t i = 0; i < text.size();) {
    const size_t here = i;
    const bool is_alphanumeric = IsAlphanumeric(NextCharacter(text, &i));
    if (is_alphanumeric == was_alphanumeric) continue;
    const absl::string_view token = text.substr(begin, here - begin);
    if (token != " " || begin == 0) tokens.push_back(token);
    begin = here;
    was_alphanumeric = is_alphanumeric;
  }
  tokens.push_back(text.substr(begin));
  return tokens;
}

std::string JoinTokens(absl::Span<const std::string> tokens) {
  std::string text;
  bool was_alphanumeric = false;
  for (const std::string& token : tokens) {
    const bool is_alphanumeric = BeginsAlphanumeric(token);
    if (was_alphanumeric && is_alphanumeric) text += ' ';
    text += token;
    was_alphanumeric = is_alphanumeric;
  }
  return text;
}

void AddCharacters(absl::string_view text, Alphabet* alphabet) {
  for (size_t i = 0; i < text.size();) alphabet->insert(NextCharacter(text, &i));
}

void AppendEscaped(absl::string_view token, const Alphabet& alphabet, std::string* escaped) {
  for (size_t i = 0; i < token.size();) {
    const size_t begin = i;
    const char32_t character = NextCharacter(token, &i);
    if (character == '\\') {
      *escaped += "\\\\";
    } else if (character == '_') {
      *escaped += "\\u";
    } else if (character == '\n' || !alphabet.contains(character)) {
      absl::StrAppend(escaped, "\\", static_cast<uint32_t>(character), ";");
    } else {
      absl::StrAppend(escaped, token.substr(begin, i - begin));
    }
  }
  *escaped += '_';
}

std::string Unescape(absl::string_view escaped) {
  std::string token;
  for (size_t i = 0; i < escaped.size();) {
    const absl::string_view rest = escaped.substr(i);
    if (rest[0] != '\\' || rest.size() == 1) {
      token += rest[0];
      ++i;
      continue;
    }
    if (rest[1] == 'u' || rest[1] == '\\') {
      token += rest[1] == 'u' ? '_' : '\\';
      i += 2;
      continue;
    }
    size_t end = 1;
    while (end < rest.size() && absl::ascii_isdigit(rest[end])) ++end;
    if (end == 1 || end == rest.size() || rest[end] != ';') {
      token += '\\';
      ++i;
      continue;
    }
    AppendNumbered(rest.substr(1, end - 1), &token);
    i += end + 1;
  }
  return token;
}

}  // namespace official::transformer
