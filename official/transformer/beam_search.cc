#include "official/transformer/beam_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "official/transformer/text/reserved_ids.h"

namespace official::transformer {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
// What a hypothesis loses where it does not belong: one with EOS among those that go on.
constexpr float kInf = 1e7f;

// The indices of the `n` largest scores, the largest first, of equal ones the lower first.
std::vector<int64_t> Best(absl::Span<const float> scores, int64_t n) {
  std::vector<int64_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return scores[a] > scores[b]; });
  order.resize(std::min<size_t>(order.size(), n));
  return order;
}

}  // namespace

BeamSearch::BeamSearch(const BeamSearchOptions& options)
    : options_(options), alive_(options.beam_size, {{}, kMinusInfinity}), parents_(options.beam_size) {
  alive_[0].score = 0;
}

float BeamSearch::LengthPenalty(int64_t length) const {
  return std::pow((5.0f + static_cast<float>(length)) / 6.0f, static_cast<float>(options_.alpha));
}

bool BeamSearch::IsDone() const {
  if (length_ >= options_.max_decode_length) return true;
  if (finished_.empty()) return false;
  // The best that can still come is better than none of those that are there, of which places left over do not count.
  return finished_.back().score > alive_[0].score / LengthPenalty(options_.max_decode_length);
}

absl::Span<const int64_t> BeamSearch::Advance(absl::Span<const float> log_probs, absl::Span<const int32_t> ids) {
  const int64_t per_hypothesis = static_cast<int64_t>(ids.size()) / options_.beam_size;
  std::vector<float> scores(log_probs.begin(), log_probs.end());
  for (float& score : scores) score = std::isnan(score) ? kMinusInfinity : score;
  const std::vector<int64_t> candidates = Best(scores, 2 * options_.beam_size);
  ++length_;

  const auto is_eos = [&](int64_t candidate) { return ids[candidate] == kEosId; };
  const auto continued = [&](int64_t candidate, float score) {
    Hypothesis longer{alive_[candidate / per_hypothesis].ids, score};
    longer.ids.push_back(ids[candidate]);
    return longer;
  };
  const float penalty = LengthPenalty(length_);
  std::vector<float> going_on;
  for (const int64_t candidate : candidates) {
    going_on.push_back(scores[candidate] - (is_eos(candidate) ? kInf : 0));
    const float score = scores[candidate] / penalty;
    // Behind the empty places that upstream begins with come the hypotheses without EOS, and impossible ones.
    if (is_eos(candidate) && score > -kInf) finished_.push_back(continued(candidate, score));
  }
  std::stable_sort(finished_.begin(), finished_.end(),
                   [](const Hypothesis& a, const Hypothesis& b) { return a.score > b.score; });
  finished_.resize(std::min<size_t>(finished_.size(), options_.beam_size));

  std::vector<Hypothesis> alive;
  for (const int64_t i : Best(going_on, options_.beam_size)) {
    parents_[alive.size()] = candidates[i] / per_hypothesis;
    alive.push_back(continued(candidates[i], going_on[i]));
  }
  alive_ = std::move(alive);
  return parents_;
}

}  // namespace official::transformer
