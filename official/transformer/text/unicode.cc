#include "official/transformer/text/unicode.h"

#include <unicode/bytestream.h>
#include <unicode/casemap.h>
#include <unicode/uchar.h>
#include <unicode/utf8.h>

#include <algorithm>

#include "utils/compute/core/check.h"

namespace official::transformer {
namespace {

bool IsIn(char32_t character, uint32_t categories) { return (U_GET_GC_MASK(character) & categories) != 0; }

bool IsContinuation(char byte) { return (byte & 0xc0) == 0x80; }

}  // namespace

bool IsAlphanumeric(char32_t character) { return IsIn(character, U_GC_L_MASK | U_GC_N_MASK); }
bool IsPunctuation(char32_t character) { return IsIn(character, U_GC_P_MASK); }
bool IsSymbol(char32_t character) { return IsIn(character, U_GC_S_MASK); }
bool IsDigit(char32_t character) { return IsIn(character, U_GC_ND_MASK); }

// Bidirectional class WS, B or S, or category Zs. Source: the documentation of Python's str.isspace.
bool IsSpace(char32_t character) {
  if (IsIn(character, U_GC_ZS_MASK)) return true;
  const UCharDirection direction = u_charDirection(character);
  return direction == U_WHITE_SPACE_NEUTRAL || direction == U_BLOCK_SEPARATOR || direction == U_SEGMENT_SEPARATOR;
}

size_t FindInvalidUtf8(absl::string_view text) {
  const char* bytes = text.data();
  for (size_t i = 0; i < text.size();) {
    const size_t begin = i;
    UChar32 character;
    U8_NEXT(bytes, i, text.size(), character);
    if (character < 0) return begin;
  }
  return absl::string_view::npos;
}

char32_t NextCharacter(absl::string_view text, size_t* i) {
  const char* bytes = text.data();
  char32_t character;
  U8_NEXT_UNSAFE(bytes, *i, character);
  return character;
}

void AppendCharacter(char32_t character, std::string* text) {
  char bytes[U8_MAX_LENGTH];
  int length = 0;
  U8_APPEND_UNSAFE(bytes, length, character);
  text->append(bytes, length);
}

int64_t CountCharacters(absl::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char byte) { return !IsContinuation(byte); });
}

absl::string_view Strip(absl::string_view text) {
  size_t begin = 0;
  for (size_t i = 0; i < text.size() && IsSpace(NextCharacter(text, &i)); begin = i) {
  }
  text.remove_prefix(begin);
  while (!text.empty()) {
    size_t last = text.size() - 1;
    while (IsContinuation(text[last])) --last;
    size_t i = last;
    if (!IsSpace(NextCharacter(text, &i))) break;
    text.remove_suffix(text.size() - last);
  }
  return text;
}

std::string LowerCase(absl::string_view text) {
  std::string lower;
  icu::StringByteSink<std::string> sink(&lower);
  UErrorCode error = U_ZERO_ERROR;
  icu::CaseMap::utf8ToLower(/*locale=*/"", /*options=*/0, icu::StringPiece(text.data(), text.size()), sink,
                            /*edits=*/nullptr, error);
  OFFICIAL_CHECK(U_SUCCESS(error)) << u_errorName(error);
  return lower;
}

}  // namespace official::transformer
