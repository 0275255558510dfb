#include "utils/compute/ops/top_k/top_k.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>

#include "utils/compute/testing/op_test.h"

namespace official::compute {
namespace {

using testing::Doubles;

TEST_CASE("ArgMax takes the first maximum, of integers too") {
  const Tensor x = Tensor::Of<float>({3, 4}, {1, 5, 5, 0, -1, -2, -1, -3, 2, 2, 2, 2});
  for (const Tensor& input : {x, x.CastTo(DType::kInt32)}) {
    const Tensor y =
        testing::RunOnCpu({input}, [](absl::Span<const Value> in) { return std::vector<Value>{ArgMax(in[0])}; })[0];
    CHECK(y.type().ToString() == "int64[3]");
    CHECK(y.data<int64_t>()[0] == 1);
    CHECK(y.data<int64_t>()[1] == 0);
    CHECK(y.data<int64_t>()[2] == 0);
  }
}

TEST_CASE("ArgMax over the last dimension of any rank") {
  const int n = GENERATE(1, 10, 300);
  testing::CheckForward({
      .op = "ArgMax",
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
  const int n = GENERATE(1, 5, 300);
  const int k = GENERATE(1, 5, 40);
  if (k > n) return;
  Tensor x = testing::RandomInts({4, n}, 9, 20).CastTo(DType::kFloat32);
  testing::CheckForward({
      .op = "TopK",
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

TEST_CASE("A k that does not fit is refused") {
  const absl::Status status = testing::BuildStatus(
      {{DType::kFloat32, {2, 3}}}, [](absl::Span<const Value> in) { return std::vector<Value>{TopK(in[0], 4).first}; });
  CHECK_THAT(std::string(status.message()), Catch::Contains("got k = 4; inputs are float32[2,3]"));
}

}  // namespace
}  // namespace official::compute
