#include "official/transformer/packing.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <vector>

#include "utils/compute/core/batch_parts.h"

namespace official::transformer {
namespace {

using compute::Tensor;
using Ids = std::vector<int32_t>;

// The first `n` numbers; the others must be 0.
Ids First(const Tensor& tensor, int64_t n) {
  const auto all = tensor.flat<int32_t>();
  for (size_t i = n; i < all.size(); ++i) CHECK(all[i] == 0);
  return {all.begin(), all.begin() + n};
}

Ids All(const Tensor& tensor) { return First(tensor, tensor.type().shape.num_elements()); }

data::Batch ThreePairs() {
  data::Batch batch;
  batch.num_examples = 3;
  batch.features = {Tensor::Of<int32_t>({3, 4}, {5, 1, 0, 0, 6, 7, 8, 1, 9, 4, 1, 0}),
                    Tensor::Of<int32_t>({3}, {2, 4, 3})};
  batch.labels = {Tensor::Of<int32_t>({3, 3}, {3, 2, 1, 4, 1, 0, 1, 0, 0}), Tensor::Of<int32_t>({3}, {3, 2, 1})};
  return batch;
}

TEST_CASE("Sentences are packed one after the other") {
  const train::BatchShare share = PackedShare(train::Mode::kTrain, ThreePairs(), {0, 3});
  CHECK(First(share.features[0], 9) == Ids{5, 1, 6, 7, 8, 1, 9, 4, 1});
  CHECK(share.features[0].type().shape == compute::Shape({64}));
  CHECK(All(share.features[1]) == Ids{0, 2, 6, 9, 9});
  CHECK(First(share.labels[0], 6) == Ids{3, 2, 1, 4, 1, 1});
  CHECK(All(share.labels[1]) == Ids{0, 3, 5, 6, 6});
  CHECK(share.weight == 6);
}

TEST_CASE("A share has its own sentences only, or none") {
  const train::BatchShare share = PackedShare(train::Mode::kTrain, ThreePairs(), {1, 3});
  CHECK(First(share.features[0], 7) == Ids{6, 7, 8, 1, 9, 4, 1});
  CHECK(All(share.features[1]) == Ids{0, 4, 7});
  CHECK(First(share.labels[0], 3) == Ids{4, 1, 1});
  CHECK(share.weight == 3);
  const train::BatchShare none = PackedShare(train::Mode::kTrain, ThreePairs(), {3, 3});
  CHECK(none.weight == 0);
  CHECK(All(none.labels[1]) == Ids{0, 0});
  CHECK(none.features[0].type().shape == compute::Shape({64}));
}

TEST_CASE("Parts that are to be alike have the shapes of the largest") {
  constexpr int64_t kPairs = 7;
  const Ids lengths = {150, 20, 20, 20, 20, 150, 150}, target_lengths = {90, 1, 1, 1, 1, 1, 1};
  Tensor inputs(compute::DType::kInt32, {kPairs, 150}), targets(compute::DType::kInt32, {kPairs, 90});
  for (int64_t i = 0; i < kPairs; ++i) {
    std::fill_n(inputs.data<int32_t>() + i * 150, lengths[i], 2);
    std::fill_n(targets.data<int32_t>() + i * 90, target_lengths[i], 3);
  }
  data::Batch batch;
  batch.num_examples = kPairs;
  batch.features = {inputs, Tensor::Of<int32_t>({kPairs}, lengths)};
  batch.labels = {targets, Tensor::Of<int32_t>({kPairs}, target_lengths)};

  for (int part = 0; part < 4; ++part) {
    CAPTURE(part);
    const compute::Share examples = compute::ShareOf(kPairs, part, 4);  // 2, 2, 2 and 1 of them
    const train::BatchShare alike = PackedShare(train::Mode::kTrain, batch, examples, /*parts_alike=*/4);
    CHECK(alike.features[0].type().shape == compute::Shape({192}));  // 150 + 20
    CHECK(alike.labels[0].type().shape == compute::Shape({128}));    // 90 + 1
    CHECK(alike.features[1].type().shape == compute::Shape({3}));
    CHECK(alike.labels[1].type().shape == compute::Shape({3}));
    // The same sentences as in the smallest shapes.
    const train::BatchShare alone = PackedShare(train::Mode::kTrain, batch, examples);
    CHECK(alike.weight == alone.weight);
    const int64_t tokens = All(alone.features[1]).back();
    CHECK(First(alike.features[0], tokens) == First(alone.features[0], tokens));
    CHECK(All(alike.features[1]).back() == tokens);
  }
}

TEST_CASE("An evaluation keeps the padding of targets") {
  const train::BatchShare share = PackedShare(train::Mode::kEval, ThreePairs(), {0, 3});
  CHECK(First(share.labels[0], 9) == Ids{3, 2, 1, 4, 1, 0, 1, 0, 0});
  CHECK(All(share.labels[1]) == Ids{0, 3, 6, 9, 9});
  CHECK(First(share.features[0], 9) == Ids{5, 1, 6, 7, 8, 1, 9, 4, 1});
  CHECK(share.weight == 6);
}

TEST_CASE("Rows are padded to few lengths") {
  CHECK(PaddedRows(0) == 64);
  CHECK(PaddedRows(64) == 64);
  CHECK(PaddedRows(65) == 128);
  CHECK(PaddedRows(2000) == 2048);
  CHECK(PaddedRows(2049) == 2176);
  CHECK(PaddedRows(4096) == 4096);
  CHECK(PaddedRows(4097) == 4096 + 256);
}

}  // namespace
}  // namespace official::transformer
