// BLEU (Papineni et al., "BLEU: a Method for Automatic Evaluation of Machine Translation", 2002) of a whole corpus.
// Source: tensorflow/models@d64bcfe3 official/transformer/utils/metrics.py and compute_bleu.py.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "official/transformer/bleu/tokenize.h"

namespace official::transformer {

enum class BleuFormula {
  kOfficial,   // upstream's
  kSacreBleu,  // the same, except that it is 0 if no n-gram matches or the translations have no 4-grams
};

// Returns the BLEU, in [0, 1], in float32 as upstream: the geometric mean of the precisions of 1- to 4-grams, times
// exp(1 - r / t) if the translations have fewer tokens, t, than the references, r. The n-th order without a match
// counts as 1/2^n of a match; one without any n-grams is left out of the product, not of the root. 0 if the
// translations are empty. Translation i is compared with reference i; a token is a number.
float CorpusBleu(absl::Span<const std::vector<int32_t>> references, absl::Span<const std::vector<int32_t>> translations,
                 BleuFormula formula = BleuFormula::kOfficial);

struct BleuOptions {
  bool case_sensitive = true;
  BleuTokenizer tokenizer = BleuTokenizer::kOfficial;
};

// Returns 100 times the BLEU of as many translations as references, both well-formed UTF-8. With the tokenizer k13a it
// is sacreBLEU's, by BleuFormula::kSacreBleu.
float TextBleu(absl::Span<const std::string> references, absl::Span<const std::string> translations,
               const BleuOptions& options);

// Returns the same for two text files, a sentence a line. As upstream, lines end as in Python's str.splitlines, and
// blank lines at the beginning and the end of a file do not count, unless only with them both files have as many lines,
// each ending with '\n': a translation of a sentence may be empty, and so may all of them. NotFound if a file is
// missing; DataLoss if one is not UTF-8, if the reference has no sentences, or if the numbers of lines differ, naming
// both files and counts unless the translation has no sentences at all.
absl::StatusOr<float> FileBleu(const std::string& reference, const std::string& translation,
                               const BleuOptions& options);

}  // namespace official::transformer
