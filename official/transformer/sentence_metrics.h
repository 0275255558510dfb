// The metrics of upstream's evaluation over whole sentences. They compare the most likely id at each position, given
// the reference before it, with the reference, padding of both included; so their BLEU is only an approximation.
// Source: tensorflow/models official/transformer/utils/metrics.py at d64bcfe3.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "utils/train/model.h"

namespace official::transformer {

// Return the ROUGE of a sentence, in [0, 1]: the F score of the bigrams that occur in both, and that of the longest
// common subsequence.
double Rouge2(absl::Span<const int32_t> predicted, absl::Span<const int32_t> reference);
double RougeL(absl::Span<const int32_t> predicted, absl::Span<const int32_t> reference);

// Returns the metrics of a batch whose shares are those of PackedShare, with the best ids int32 [U, k], the most likely
// first, as predictions: metrics/accuracy_per_sequence, which leaves padding out, is a mean over sentences;
// metrics/approx_bleu_score, metrics/rouge_2_fscore and metrics/rouge_L_fscore are means over batches.
std::vector<train::HostMetric> SentenceMetrics(absl::Span<const train::ShareResults> shares);

}  // namespace official::transformer
