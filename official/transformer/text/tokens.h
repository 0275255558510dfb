// Tokens: the runs of letters and digits in a text and the runs between them; and the escaped form in which a token is
// cut into subtokens. All text is well-formed UTF-8. Source: tensorflow/models@d64bcfe3
// official/transformer/utils/tokenizer.py.
#pragma once

#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace official::transformer {

// Cuts the text where letters or digits begin or end. A token that is one space is left out, unless it is the first or
// the last.
std::vector<absl::string_view> SplitIntoTokens(absl::string_view text);

// Does the inverse: puts a space between two tokens that both begin with a letter or digit. Tokens are not empty.
std::string JoinTokens(absl::Span<const std::string> tokens);

// The characters that need no escape.
using Alphabet = absl::flat_hash_set<char32_t>;

// Adds the characters of `text`.
void AddCharacters(absl::string_view text, Alphabet* alphabet);

// Appends the token with \ as \\, _ as \u, a newline and each character that is not in the alphabet as \<its number>;
// and a final _.
void AppendEscaped(absl::string_view token, const Alphabet& alphabet, std::string* escaped);

// Returns the token that an escaped token, without its _, stands for. A \<number>; that is not a character's becomes
// U+3013; a \ that begins no escape stays.
std::string Unescape(absl::string_view escaped);

}  // namespace official::transformer
