// The search for the best translation of a sentence. Source: tensorflow/models
// official/transformer/model/beam_search.py at d64bcfe3, whose arithmetic in float32 is followed.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace official::transformer {

struct BeamSearchOptions {
  int64_t beam_size = 4;
  double alpha = 0.6;  // scores are log probabilities / ((5 + length) / 6)^alpha
  int64_t max_decode_length = 0;
};

struct Hypothesis {
  std::vector<int32_t> ids;  // token ids with EOS at the end, unless max_decode_length was reached first
  float score = 0;           // without EOS, the log probability
};

// Follows `beam_size` hypotheses. Each step extends each of them by one token and keeps the best; those that end with
// EOS are set aside. The search is done when none of the others could become better than those set aside, or when they
// are max_decode_length long.
class BeamSearch {
 public:
  explicit BeamSearch(const BeamSearchOptions& options);

  bool IsDone() const;

  // The newest token, 0 at the beginning, and the log probability of the k-th best unfinished hypothesis.
  int32_t newest(int64_t k) const { return alive_[k].ids.empty() ? 0 : alive_[k].ids.back(); }
  float log_prob(int64_t k) const { return alive_[k].score; }

  // Makes a step with the n best continuations of each hypothesis, [beam_size, n] in row-major order, the best first.
  // Their log probabilities are those of the whole hypotheses. n is at least min(2 * beam_size, vocab_size). Returns
  // for each unfinished hypothesis the number of the one that it continues; valid until the next step.
  absl::Span<const int64_t> Advance(absl::Span<const float> log_probs, absl::Span<const int32_t> ids);

  // The result, once the search is done.
  const Hypothesis& best() const { return finished_.empty() ? alive_[0] : finished_[0]; }

 private:
  float LengthPenalty(int64_t length) const;

  BeamSearchOptions options_;
  int64_t length_ = 0;
  std::vector<Hypothesis> alive_;     // beam_size; the score is the log probability
  std::vector<Hypothesis> finished_;  // up to beam_size, the best first
  std::vector<int64_t> parents_;
};

}  // namespace official::transformer
