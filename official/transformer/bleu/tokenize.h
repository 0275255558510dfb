// Splits texts into the tokens that BLEU compares.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace official::transformer {

enum class BleuTokenizer {
  // Upstream's, after mteval-v14.pl: punctuation is split from non-digits, symbols from everything, for all of Unicode.
  // A backslash is not punctuation, as upstream writes it into a regular expression unescaped. Source:
  // tensorflow/models@d64bcfe3 official/transformer/compute_bleu.py.
  kOfficial,
  // sacreBLEU's default, after mteval-v13a.pl: the same idea for ASCII, with the entities of SGML.
  k13a,
};

// Returns the tokens of `text`, which is well-formed UTF-8.
std::vector<std::string> BleuTokens(absl::string_view text, BleuTokenizer tokenizer);

}  // namespace official::transformer
