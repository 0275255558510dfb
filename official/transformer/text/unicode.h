// Unicode text in UTF-8, with the rules of Python's str.
//
// Categories and case are those of Debian's ICU 72, which knows Unicode 15.0; Python 3.6, which upstream ran on, knows
// 9.0, and Python 3.11 14.0. They differ in characters that were not assigned yet (letters of rare scripts, and symbols
// such as new emoji), which Python takes for neither letters nor symbols.
#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace official::transformer {

bool IsAlphanumeric(char32_t character);  // categories that begin with L or N
bool IsPunctuation(char32_t character);   // P
bool IsSymbol(char32_t character);        // S
bool IsDigit(char32_t character);         // Nd; re's \d
bool IsSpace(char32_t character);         // str.isspace, also the blanks of strip() and split()

// Returns the offset of the first byte that does not belong to a well-formed character; npos if all do. Well-formed as
// for Python's strict decoder: no surrogates, no overlong forms, nothing above U+10FFFF.
size_t FindInvalidUtf8(absl::string_view text);

// The functions below take well-formed UTF-8.

// Returns the character that begins at offset *i, and moves *i past it.
char32_t NextCharacter(absl::string_view text, size_t* i);
// Appends a character, which must not be a surrogate.
void AppendCharacter(char32_t character, std::string* text);
int64_t CountCharacters(absl::string_view text);
absl::string_view Strip(absl::string_view text);
std::string LowerCase(absl::string_view text);

}  // namespace official::transformer
