#include "utils/data/dataset.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "utils/data/permutation.h"

namespace official::data {
namespace {

using compute::DType;
using compute::Tensor;

std::vector<int64_t> Order(int64_t n, uint64_t seed, int64_t epoch) {
  const Permutation permutation(n, seed, epoch);
  std::vector<int64_t> order(n);
  for (int64_t i = 0; i < n; ++i) order[i] = permutation(i);
  return order;
}

TEST_CASE("A permutation holds every number once") {
  for (int64_t n : {1, 2, 3, 7, 255, 256, 257, 1023, 1024, 1025, 60000}) {
    std::vector<int64_t> order = Order(n, /*seed=*/1, /*epoch=*/0);
    std::sort(order.begin(), order.end());
    std::vector<int64_t> all(n);
    std::iota(all.begin(), all.end(), 0);
    CHECK(order == all);
  }
}

TEST_CASE("Permutations differ by seed and by epoch, and are the same when asked again") {
  const std::vector<int64_t> order = Order(1000, 1, 0);
  CHECK(order == Order(1000, 1, 0));
  CHECK(order != Order(1000, 1, 1));
  CHECK(order != Order(1000, 2, 0));
}

TEST_CASE("Many numbers at once are those that come one by one") {
  for (int64_t n : {1, 5, 1025, 60000}) {
    const Permutation permutation(n, /*seed=*/3, /*epoch=*/1);
    const std::vector<int64_t> order = Order(n, 3, 1);
    for (const int64_t begin : {int64_t{0}, n / 3}) {
      std::vector<int64_t> mapped(n - begin);
      permutation.Map(begin, n - begin, mapped.data());
      CHECK(std::equal(mapped.begin(), mapped.end(), order.begin() + begin));
    }
  }
}

// Pearson's chi-square statistic of `counts` against equal expectations.
double ChiSquare(const std::vector<int64_t>& counts) {
  const double expected = std::accumulate(counts.begin(), counts.end(), 0.0) / counts.size();
  double sum = 0;
  for (int64_t count : counts) sum += (count - expected) * (count - expected) / expected;
  return sum;
}

// Mean and standard deviation of the chi-square distribution are f and sqrt(2 f); 5 deviations are never reached by
// chance.
double ChiSquareLimit(int degrees_of_freedom) { return degrees_of_freedom + 5 * std::sqrt(2.0 * degrees_of_freedom); }

TEST_CASE("All 120 orders of five examples are equally frequent") {
  std::map<std::vector<int64_t>, int64_t> seen;
  for (int64_t epoch = 0; epoch < 12000; ++epoch) ++seen[Order(5, /*seed=*/7, epoch)];
  REQUIRE(seen.size() == 120);
  std::vector<int64_t> counts;
  for (const auto& [order, count] : seen) counts.push_back(count);
  CHECK(ChiSquare(counts) < ChiSquareLimit(119));
}

TEST_CASE("Every example is equally likely at every place, and neighbours are independent") {
  constexpr int kBuckets = 16;
  constexpr int64_t kExamples = 4096;
  std::vector<int64_t> place(kBuckets * kBuckets), neighbours(kBuckets * kBuckets);
  for (int64_t epoch = 0; epoch < 50; ++epoch) {
    const std::vector<int64_t> order = Order(kExamples, /*seed=*/3, epoch);
    for (int64_t i = 0; i + 1 < kExamples; ++i) {
      const int64_t bucket = order[i] * kBuckets / kExamples;
      ++place[i * kBuckets / kExamples * kBuckets + bucket];
      ++neighbours[bucket * kBuckets + order[i + 1] * kBuckets / kExamples];
    }
  }
  CHECK(ChiSquare(place) < ChiSquareLimit(255));
  CHECK(ChiSquare(neighbours) < ChiSquareLimit(255));
}

TEST_CASE("Random streams of different examples, epochs and seeds are different, one stream is repeatable") {
  std::set<uint32_t> first_words;
  for (uint64_t seed : {1, 2}) {
    for (int64_t epoch : {0, 1}) {
      for (int64_t index : {int64_t{0}, int64_t{1}, int64_t{1} << 32})
        first_words.insert(Random(seed, epoch, index).Bits());
    }
  }
  CHECK(first_words.size() == 12);
  Random a(1, 2, 3), b(1, 2, 3);
  for (int i = 0; i < 20; ++i) CHECK(a.Bits() == b.Bits());
}

TEST_CASE("Random numbers have the moments of their distribution") {
  Random random(1, 0, 0);
  double sum = 0, squares = 0, uniform = 0;
  constexpr int kDraws = 100000;
  for (int i = 0; i < kDraws; ++i) {
    const double x = random.Normal();
    sum += x;
    squares += x * x;
    uniform += random.Uniform(-1, 3);
  }
  CHECK(sum / kDraws == Approx(0).margin(0.02));
  CHECK(squares / kDraws == Approx(1).margin(0.02));
  CHECK(uniform / kDraws == Approx(1).margin(0.02));
  std::vector<int64_t> counts(10);
  for (int i = 0; i < kDraws; ++i) ++counts[random.UniformInt(10)];
  CHECK(ChiSquare(counts) < ChiSquareLimit(9));
}

DatasetPtr FiveExamples() {
  return TensorSlices({{"x", Tensor::Of<float>({5, 2}, {0, 1, 10, 11, 20, 21, 30, 31, 40, 41})}},
                      {{"", Tensor::Of<int32_t>({5}, {0, 1, 2, 3, 4})}});
}

TEST_CASE("TensorSlices gives the rows of its tensors") {
  const DatasetPtr dataset = FiveExamples();
  CHECK(dataset->num_examples() == 5);
  CHECK(dataset->spec().features == std::vector<Leaf>{{"x", {DType::kFloat32, {2}}}});
  CHECK(dataset->spec().labels == std::vector<Leaf>{{"", {DType::kInt32, {}}}});
  const Example example = MakeExample(dataset->spec());
  REQUIRE(dataset->Read(/*epoch=*/9, /*index=*/3, example).ok());
  CHECK(example.features[0].data<float>()[1] == 31);
  CHECK(example.labels[0].scalar<int32_t>() == 3);
}

TEST_CASE("Map gives each example its own random stream and passes errors on") {
  const ElementSpec spec = {{{"bits", {DType::kInt64, {}}}}, {{"", {DType::kInt32, {}}}}};
  const DatasetPtr mapped =
      Map(FiveExamples(), spec, /*seed=*/1, [](const Example& in, Random& random, const Example& out) -> absl::Status {
        if (in.labels[0].scalar<int32_t>() == 4) return absl::DataLossError("example 4 is bad");
        *out.features[0].data<int64_t>() = random.Bits();
        *out.labels[0].data<int32_t>() = in.labels[0].scalar<int32_t>() * 2;
        return absl::OkStatus();
      });
  const Example out = MakeExample(mapped->spec());
  std::set<int64_t> draws;
  for (int64_t epoch : {0, 1}) {
    for (int64_t index = 0; index < 4; ++index) {
      REQUIRE(mapped->Read(epoch, index, out).ok());
      CHECK(out.labels[0].scalar<int32_t>() == 2 * index);
      CHECK(out.features[0].scalar<int64_t>() == Random(1, epoch, index).Bits());
      draws.insert(out.features[0].scalar<int64_t>());
    }
  }
  CHECK(draws.size() == 8);
  CHECK(mapped->Read(0, 4, out) == absl::DataLossError("example 4 is bad"));
}

TEST_CASE("Shuffle reads every example once an epoch, in the order of the permutation") {
  const DatasetPtr shuffled = Shuffle(FiveExamples(), /*seed=*/1);
  const Example example = MakeExample(shuffled->spec());
  for (int64_t epoch : {0, 1, 2}) {
    std::vector<int64_t> labels;
    for (int64_t i = 0; i < 5; ++i) {
      REQUIRE(shuffled->Read(epoch, i, example).ok());
      labels.push_back(example.labels[0].scalar<int32_t>());
    }
    CHECK(labels == Order(5, 1, epoch));
  }
}

}  // namespace
}  // namespace official::data
