#include "official/transformer/sentence_metrics.h"

#include <catch2/catch.hpp>
#include <map>
#include <string>

#include "official/transformer/bleu/bleu.h"
#include "official/transformer/packing.h"

namespace official::transformer {
namespace {

using compute::DType;
using compute::Tensor;
using Ids = std::vector<int32_t>;

// Expected: upstream's metrics.py in Python.
TEST_CASE("ROUGE is upstream's") {
  CHECK(Rouge2(Ids{1, 2, 3, 4}, Ids{1, 2, 3, 5}) == Approx(0.6666667));
  CHECK(Rouge2(Ids{1, 2, 1, 2}, Ids{2, 1, 3}) == Approx(0.5));  // sets of pairs
  CHECK(Rouge2(Ids{1}, Ids{1}) == 0);
  CHECK(RougeL(Ids{1, 2, 3, 4}, Ids{1, 2, 3, 5}) == Approx(0.75));
  CHECK(RougeL(Ids{1, 3, 2, 4, 6}, Ids{1, 2, 3, 4}) == Approx(0.6507937));
  CHECK(RougeL(Ids{1, 2}, Ids{3}) == 0);
}

// Three sentences of up to 4 ids, of which the second is predicted wholly but for its padding.
TEST_CASE("Metrics of a batch do not depend on how it is shared") {
  data::Batch batch;
  batch.num_examples = 3;
  Tensor targets(DType::kInt32, {3, 4}), lengths(DType::kInt32, {3});
  const Ids ids = {5, 6, 7, 1, 5, 1, 0, 0, 8, 9, 1, 0}, sizes = {4, 2, 3};
  const Ids predicted = {5, 6, 2, 1, 5, 1, 1, 1, 9, 8, 1, 0};
  std::copy(ids.begin(), ids.end(), targets.data<int32_t>());
  std::copy(sizes.begin(), sizes.end(), lengths.data<int32_t>());
  batch.features = batch.labels = {targets, lengths};

  const int parts = GENERATE(1, 2, 3);
  std::vector<train::BatchShare> shares;
  std::vector<train::ShareResults> results;
  for (int p = 0; p < parts; ++p) {
    shares.push_back(PackedShare(train::Mode::kEval, batch, compute::ShareOf(3, p, parts)));
  }
  for (const train::BatchShare& share : shares) {
    Tensor best(DType::kInt32, {share.labels[0].shape().dim(0), 2});
    for (int64_t i = 0; i < 4 * share.examples.size(); ++i) {
      best.data<int32_t>()[2 * i] = predicted[4 * share.examples.begin + i];
      best.data<int32_t>()[2 * i + 1] =
          ids[4 * share.examples.begin + i];  // the second best is right, and not looked at
    }
    results.push_back({share.labels, {best}});
  }
  std::map<std::string, double> values;
  for (const train::HostMetric& metric : SentenceMetrics(results)) values[metric.name] = metric.total / metric.count;
  REQUIRE(values.size() == 4);
  CHECK(values["metrics/accuracy_per_sequence"] == Approx(1. / 3));
  const std::vector<Ids> rows = {{5, 6, 7, 1}, {5, 1, 0, 0}, {8, 9, 1, 0}};
  const std::vector<Ids> predicted_rows = {{5, 6, 2, 1}, {5, 1, 1, 1}, {9, 8, 1, 0}};
  CHECK(values["metrics/approx_bleu_score"] == CorpusBleu(rows, predicted_rows));
  // Of pairs 1 of 3 and 3; 1 of 2 and 3; 1 of 3 and 3. Of subsequences 3, 2 and 3 of 4.
  CHECK(values["metrics/rouge_2_fscore"] == Approx((1. / 3 + 0.4 + 1. / 3) / 3));
  CHECK(values["metrics/rouge_L_fscore"] == Approx((0.75 + 0.5 + 0.75) / 3));
}

}  // namespace
}  // namespace official::transformer
