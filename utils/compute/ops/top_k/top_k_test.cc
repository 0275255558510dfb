#include "utils/compute/ops/top_k/top_k.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <numeric>

#include "utils/compute/ops/top_k/order_key.h"
#include "utils/compute/testing/op_test.h"

namespace official::compute {
namespace {

using testing::Doubles;

TEST_CASE("ArgMax takes the first maximum, of integers too") {
  const std::string kind = GENERATE(from_range(testing::KindsUnderTest()));
  const Tensor x = Tensor::Of<float>({3, 4}, {1, 5, 5, 0, -1, -2, -1, -3, 2, 2, 2, 2});
  for (const Tensor& input : {x, x.CastTo(DType::kInt32)}) {
    const Tensor y =
        testing::RunOn(kind, {input}, [](absl::Span<const Value> in) { return std::vector<Value>{ArgMax(in[0])}; })[0];
    CHECK(y.type().ToString() == "int64[3]");
    CHECK(y.data<int64_t>()[0] == 1);
    CHECK(y.data<int64_t>()[1] == 0);
    CHECK(y.data<int64_t>()[2] == 0);
  }
}

TEST_CASE("ArgMax over the last dimension of any rank") {
  const int n = GENERATE(1, 10, 300, 3000);
  testing::CheckForward({
      .op = op::ArgMax,
      .inputs = {testing::RandomTensor(GENERATE_COPY(Shape{n}, Shape{2, 3, n}), 8)},
      .build = [](absl::Span<const Value> in) { return std::vector<Value>{ArgMax(in[0])}; },
      .reference =
          [n](const std::vector<Doubles>& in) {
            Doubles positions;
            for (auto row = in[0].begin(); row != in[0].end(); row += n) {
              positions.push_back(static_cast<double>(std::max_element(row, row + n) - row));
            }
            return std::vector<Doubles>{positions};
          },
  });
}

// Few distinct values, so that ties are common.
TEST_CASE("TopK equals a stable sort") {
  const int n = GENERATE(1, 5, 300, 3000, 3003);
  const int k = GENERATE(1, 5, 8, 40);
  if (k > n) return;
  Tensor x = testing::RandomInts({4, n}, 9, 20).CastTo(DType::kFloat32);
  testing::CheckForward({
      .op = op::TopK,
      .inputs = {x},
      .build =
          [k](absl::Span<const Value> in) {
            const auto [values, indices] = TopK(in[0], k);
            return std::vector<Value>{values, indices};
          },
      .reference =
          [n, k](const std::vector<Doubles>& in) {
            Doubles values, indices;
            for (int r = 0; r < 4; ++r) {
              std::vector<int> order(n);
              std::iota(order.begin(), order.end(), 0);
              std::stable_sort(order.begin(), order.end(),
                               [&](int a, int b) { return in[0][r * n + a] > in[0][r * n + b]; });
              for (int i = 0; i < k; ++i) {
                values.push_back(in[0][r * n + order[i]]);
                indices.push_back(order[i]);
              }
            }
            return std::vector<Doubles>{values, indices};
          },
  });
}

TEST_CASE("TopK takes NaN for the smallest") {
  const std::string kind = GENERATE(from_range(testing::KindsUnderTest()));
  const auto indices = [&](const Tensor& x, int k) {
    return testing::ToDoubles(testing::RunOn(
        kind, {x}, [k](absl::Span<const Value> in) { return std::vector<Value>{TopK(in[0], k).second}; })[0]);
  };
  const Tensor rows = Tensor::Of<float>({3, 4}, {NAN, 1, 2, NAN, 3, NAN, -INFINITY, 4, NAN, NAN, NAN, NAN});
  CHECK(indices(rows, 1) == Doubles{2, 3, 0});
  CHECK(indices(rows, 4) == Doubles{2, 1, 0, 3, 3, 0, 2, 1, 0, 1, 2, 3});
  // So long that blocks are passed over.
  const Tensor row(DType::kFloat32, {1, 300});
  std::fill_n(row.data<float>(), 300, static_cast<float>(NAN));
  row.data<float>()[299] = -INFINITY;
  row.data<float>()[150] = -1;
  CHECK(indices(row, 3) == Doubles{150, 299, 0});
}

TEST_CASE("ArgMax passes NaN over unless it comes first") {
  const std::string kind = GENERATE(from_range(testing::KindsUnderTest()));
  const Tensor y = testing::RunOn(kind, {Tensor::Of<float>({3, 3}, {NAN, 5, 6, 1, NAN, 0, -INFINITY, -2, NAN})},
                                  [](absl::Span<const Value> in) { return std::vector<Value>{ArgMax(in[0])}; })[0];
  CHECK(testing::ToDoubles(y) == Doubles{0, 0, 1});
}

TEST_CASE("Keys order elements as TopK does") {
  // From the first of the result to the last; equal elements by position.
  const float ordered[] = {INFINITY, 3e38f, 1, 1e-45f, 0, -0.0f, 0, -1e-45f, -1, -3e38f, -INFINITY, NAN};
  const int32_t integers[] = {std::numeric_limits<int32_t>::max(), 1, 0, 0, -1, std::numeric_limits<int32_t>::min()};
  for (uint32_t i = 1; i < std::size(ordered); ++i) CHECK(OrderKey(ordered[i - 1], i - 1) > OrderKey(ordered[i], i));
  for (uint32_t i = 1; i < std::size(integers); ++i) CHECK(OrderKey(integers[i - 1], i - 1) > OrderKey(integers[i], i));
  CHECK(OrderKey(2.0f, 7) > OrderKey(1.0f, 3));
  CHECK(OrderKey(NAN, 0xfffffffe) > 0);
  CHECK(IndexOfKey(OrderKey(-5.0f, 12345)) == 12345);
}

TEST_CASE("A k that does not fit is refused") {
  const absl::Status status = testing::BuildStatus(
      {{DType::kFloat32, {2, 3}}}, [](absl::Span<const Value> in) { return std::vector<Value>{TopK(in[0], 4).first}; });
  CHECK_THAT(std::string(status.message()), Catch::Contains("got k = 4; inputs are float32[2,3]"));
}

}  // namespace
}  // namespace official::compute
