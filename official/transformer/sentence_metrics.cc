#include "official/transformer/sentence_metrics.h"

#include <algorithm>
#include <set>
#include <utility>

#include "official/transformer/bleu/bleu.h"

namespace official::transformer {
namespace {

using Sentence = std::vector<int32_t>;

std::set<std::pair<int32_t, int32_t>> Bigrams(absl::Span<const int32_t> ids) {
  std::set<std::pair<int32_t, int32_t>> bigrams;
  for (size_t i = 1; i < ids.size(); ++i) bigrams.emplace(ids[i - 1], ids[i]);
  return bigrams;
}

// Whether all of the reference that is not padding is predicted.
bool IsRight(const Sentence& predicted, const Sentence& reference) {
  for (size_t i = 0; i < reference.size(); ++i) {
    if (reference[i] != 0 && predicted[i] != reference[i]) return false;
  }
  return true;
}

}  // namespace

double Rouge2(absl::Span<const int32_t> predicted, absl::Span<const int32_t> reference) {
  const auto a = Bigrams(predicted), b = Bigrams(reference);
  if (a.empty() || b.empty()) return 0;
  const auto common = std::count_if(a.begin(), a.end(), [&](const auto& bigram) { return b.count(bigram) > 0; });
  const double precision = static_cast<double>(common) / static_cast<double>(a.size());
  const double recall = static_cast<double>(common) / static_cast<double>(b.size());
  return 2 * precision * recall / (precision + recall + 1e-8);
}

double RougeL(absl::Span<const int32_t> predicted, absl::Span<const int32_t> reference) {
  if (predicted.empty() || reference.empty()) return 0;
  // Of the first i ids of the one and the first j of the other, at the end of round i: common[j].
  std::vector<int> common(reference.size() + 1);
  for (const int32_t id : predicted) {
    int before = 0;  // of i - 1 and j - 1
    for (size_t j = 1; j <= reference.size(); ++j) {
      const int above = common[j];
      common[j] = id == reference[j - 1] ? before + 1 : std::max(above, common[j - 1]);
      before = above;
    }
  }
  const double recall = common.back() / static_cast<double>(reference.size());
  const double precision = common.back() / static_cast<double>(predicted.size());
  const double beta = precision / (recall + 1e-12);
  return (1 + beta * beta) * recall * precision / (recall + beta * beta * precision + 1e-12);
}

std::vector<train::HostMetric> SentenceMetrics(absl::Span<const train::ShareResults> shares) {
  std::vector<Sentence> predicted, references;
  for (const train::ShareResults& share : shares) {
    const compute::Tensor &targets = share.labels[0], &offsets = share.labels[1];
    const compute::Tensor& best = share.predictions[0];
    const int64_t k = best.shape().dim(1);
    for (int64_t b = 0; b + 1 < offsets.shape().dim(0); ++b) {
      const int32_t begin = offsets.data<int32_t>()[b], end = offsets.data<int32_t>()[b + 1];
      if (begin == end) continue;  // sentences that fill the share up
      references.emplace_back(targets.data<int32_t>() + begin, targets.data<int32_t>() + end);
      Sentence& sentence = predicted.emplace_back();
      for (int64_t i = begin; i < end; ++i) sentence.push_back(best.data<int32_t>()[i * k]);
    }
  }
  double right = 0, rouge_2 = 0, rouge_l = 0;
  for (size_t i = 0; i < references.size(); ++i) {
    right += IsRight(predicted[i], references[i]) ? 1 : 0;
    rouge_2 += Rouge2(predicted[i], references[i]);
    rouge_l += RougeL(predicted[i], references[i]);
  }
  const auto count = static_cast<double>(references.size());
  return {{"metrics/accuracy_per_sequence", right, count},
          {"metrics/approx_bleu_score", CorpusBleu(references, predicted), 1},
          {"metrics/rouge_2_fscore", rouge_2 / count, 1},
          {"metrics/rouge_L_fscore", rouge_l / count, 1}};
}

}  // namespace official::transformer
