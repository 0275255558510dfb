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

// Returns the BLEU, in [0, 1], in float32 as upstream: the geometric mean of the precisions of 1- to 4-grams, times
// exp(1 - r / t) if the translations have fewer tokens, t, than the references, r. The n-th order without a match
// counts as 1/2^n of a match; one without any n-grams is left out of the product, not of the root. 0 if the
// translations are empty. Translation i is compared with reference i; a token is a number.
float CorpusBleu(absl::Span<const std::vector<int32_t>> references,
                 absl::Span<const std::vector<int32_t>> translations);

struct BleuOptions {
  bool case_sensitive = true;
  BleuTokenizer tokenizer = BleuTokenizer::kOfficial;
};

// Returns 100 times the BLEU of as many translations as references, both well-formed UTF-8.
float TextBleu(absl::Span<const std::string> references, absl::Span<const std::string> translations,
               const BleuOptions& options);

// Returns the same for two text files, a sentence a line. As upstream, lines end as in Python's str.splitlines, and
// blank lines at the beginning and the end of a file do not count, unless only with them both files have as many lines,
// each ending with '\n': a translation of a sentence may be empty. NotFound if a file is missing; DataLoss if one is
// not UTF-8 or has no lines, and, naming both files and counts, if the numbers of lines differ.
absl::StatusOr<float> FileBleu(const std::string& reference, const std::string& translation,
                               const BleuOptions& options);

}  // namespace official::transformer
