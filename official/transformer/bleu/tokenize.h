// How texts are cut into the tokens that BLEU compares.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace official::transformer {

enum class BleuTokenizer {
  // Upstream's, after mteval-v14.pl: punctuation is parted from what is no digit, symbols from everything, for all of
  // Unicode. A backslash is no punctuation, as upstream writes it into a regular expression without another one.
  // Source: tensorflow/models@d64bcfe3 official/transformer/compute_bleu.py.
  kOfficial,
  // sacreBLEU's default, after mteval-v13a.pl: the same idea for ASCII, with the entities of SGML.
  k13a,
};

// `text` is well-formed UTF-8.
std::vector<std::string> BleuTokens(absl::string_view text, BleuTokenizer tokenizer);

}  // namespace official::transformer
