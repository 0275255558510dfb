#include "official/transformer/bleu/tokenize.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "official/transformer/text/unicode.h"

namespace official::transformer {
namespace {

using Predicate = bool (*)(char32_t);

// Of each pair of characters for which the predicates hold, from the left and not overlapping, parts the one for which
// `part` holds from the characters around it.
enum class Part { kFirst, kSecond };
std::u32string SpacePairs(const std::u32string& text, Predicate first, Predicate second, Part part) {
  std::u32string spaced;
  for (size_t i = 0; i < text.size(); ++i) {
    if (i + 1 == text.size() || !first(text[i]) || !second(text[i + 1])) {
      spaced += text[i];
      continue;
    }
    if (part == Part::kFirst) spaced += U' ';
    spaced += text[i];
    spaced += U' ';
    spaced += text[++i];
    if (part == Part::kSecond) spaced += U' ';
  }
  return spaced;
}

std::u32string SpaceEach(const std::u32string& text, Predicate is_spaced) {
  std::u32string spaced;
  for (const char32_t character : text) {
    if (is_spaced(character)) {
      spaced += {U' ', character, U' '};
    } else {
      spaced += character;
    }
  }
  return spaced;
}

bool IsNoDigit(char32_t character) { return !IsDigit(character); }
bool IsOfficialPunctuation(char32_t character) { return character != U'\\' && IsPunctuation(character); }

std::u32string SpaceOfficial(const std::u32string& text) {
  const std::u32string before = SpacePairs(text, IsNoDigit, IsOfficialPunctuation, Part::kSecond);
  const std::u32string after = SpacePairs(before, IsOfficialPunctuation, IsNoDigit, Part::kFirst);
  return SpaceEach(after, IsSymbol);
}

bool IsAsciiDigit(char32_t character) { return character >= U'0' && character <= U'9'; }
bool IsNoAsciiDigit(char32_t character) { return !IsAsciiDigit(character); }
bool IsDotOrComma(char32_t character) { return character == U'.' || character == U','; }
bool IsDash(char32_t character) { return character == U'-'; }
// All of ASCII that is neither letter nor digit, control character, apostrophe, comma, dash or dot.
bool Is13aPunctuation(char32_t c) {
  return (c >= U'{' && c <= U'~') || (c >= U'[' && c <= U'`') || (c >= U' ' && c <= U'&') || (c >= U'(' && c <= U'+') ||
         (c >= U':' && c <= U'@') || c == U'/';
}

std::u32string Space13a(std::u32string text) {
  text = SpaceEach(text, Is13aPunctuation);
  text = SpacePairs(text, IsNoAsciiDigit, IsDotOrComma, Part::kSecond);
  text = SpacePairs(text, IsDotOrComma, IsNoAsciiDigit, Part::kFirst);
  return SpacePairs(text, IsAsciiDigit, IsDash, Part::kSecond);
}

std::u32string ToCharacters(absl::string_view text) {
  std::u32string characters;
  for (size_t i = 0; i < text.size();) characters += NextCharacter(text, &i);
  return characters;
}

// One after another, as sacreBLEU does: "&amp;lt;" becomes "<".
std::string ExpandEntities(absl::string_view text) {
  std::string expanded = absl::StrReplaceAll(text, {{"<skipped>", ""}});
  expanded = absl::StrReplaceAll(expanded, {{"&quot;", "\""}});
  expanded = absl::StrReplaceAll(expanded, {{"&amp;", "&"}});
  expanded = absl::StrReplaceAll(expanded, {{"&lt;", "<"}});
  return absl::StrReplaceAll(expanded, {{"&gt;", ">"}});
}

}  // namespace

std::vector<std::string> BleuTokens(absl::string_view text, BleuTokenizer tokenizer) {
  const std::u32string spaced = tokenizer == BleuTokenizer::kOfficial
                                    ? SpaceOfficial(ToCharacters(text))
                                    : Space13a(ToCharacters(absl::StrCat(" ", ExpandEntities(text), " ")));
  std::vector<std::string> tokens;
  bool in_token = false;
  for (const char32_t character : spaced) {
    const bool was_in_token = in_token;
    in_token = !IsSpace(character);
    if (!in_token) continue;
    if (!was_in_token) tokens.emplace_back();
    AppendCharacter(character, &tokens.back());
  }
  return tokens;
}

}  // namespace official::transformer
