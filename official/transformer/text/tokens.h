// Tokens: the runs of letters and digits, and what lies between them, that a text consists of; and the form in which a
// token is cut into subtokens. All text is well-formed UTF-8. Source: tensorflow/models@d64bcfe3
// official/transformer/utils/tokenizer.py.
#pragma once

#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace official::transformer {

// Cuts where letters or digits begin or end. A token that is one space is left out, unless it is the first or the last.
std::vector<absl::string_view> SplitIntoTokens(absl::string_view text);

// The inverse: puts a space between two tokens that both begin with a letter or digit. Tokens are not empty.
std::string JoinTokens(absl::Span<const std::string> tokens);

// The characters that need no escape.
using Alphabet = absl::flat_hash_set<char32_t>;

// Adds the characters of `text`.
void AddCharacters(absl::string_view text, Alphabet* alphabet);

// Appends the token with \ as \\, _ as \u, a newline and each character that is not in the alphabet as \<its number>;
// and the whole ended by _.
void AppendEscaped(absl::string_view token, const Alphabet& alphabet, std::string* escaped);

// What an escaped token, without its _, stands for. \<number>; of a number that is no character is U+3013; a \ that
// begins none of the escapes stays.
std::string Unescape(absl::string_view escaped);

}  // namespace official::transformer
