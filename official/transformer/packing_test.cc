#include "official/transformer/packing.h"

#include <catch2/catch.hpp>
#include <vector>

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
