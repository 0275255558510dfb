#include "utils/compute/ops/matmul/ordered_product.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "utils/compute/cpu/parallel.h"

namespace official::compute {
namespace {

std::vector<float> Random(int64_t size, int seed) {
  std::mt19937 bits(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> values(size);
  for (float& value : values) value = uniform(bits);
  return values;
}

struct Case {
  int64_t batch, m, n, k;
  bool transpose_a, transpose_b;
};

OrderedProduct ProductOf(const Case& c, int threads) {
  return {.batch = c.batch,
          .m = c.m,
          .n = c.n,
          .k = c.k,
          .a_batch_stride = c.m * c.k,
          .a_row_stride = c.transpose_a ? 1 : c.k,
          .a_column_stride = c.transpose_a ? c.m : 1,
          .b_batch_stride = c.k * c.n,
          .b_row_stride = c.transpose_b ? 1 : c.n,
          .b_column_stride = c.transpose_b ? c.k : 1,
          .num_threads = threads};
}

std::vector<float> Multiply(const Case& c, const std::vector<float>& a, const std::vector<float>& b,
                            const std::vector<float>& bias, bool relu, int threads) {
  const int before = NumThreads();
  SetNumThreads(threads);
  const OrderedProduct product = ProductOf(c, threads);
  std::vector<float> y(c.batch * c.m * c.n, NAN);
  const std::unique_ptr<void, decltype(&std::free)> scratch(std::aligned_alloc(64, product.scratch_bytes()),
                                                            &std::free);
  product.Run(a.data(), b.data(), bias.empty() ? nullptr : bias.data(), relu, y.data(), scratch.get());
  SetNumThreads(before);
  return y;
}

// Edges of tiles, panels, depths and blocks of rows; sums that are empty, of one term and long.
const std::vector<Case> kCases = {{1, 1, 1, 1, false, false},     {1, 10, 10, 1024, false, false},
                                  {1, 1024, 10, 3, true, false},  {1, 5, 33, 257, false, true},
                                  {3, 7, 17, 40, true, true},     {2, 400, 16, 513, false, false},
                                  {1, 770, 48, 256, true, false}, {1, 4, 6, 0, false, false}};

TEST_CASE("Each element is the sum of its terms in their order, for any number of threads") {
  for (const Case& c : kCases) {
    CAPTURE(c.batch, c.m, c.n, c.k, c.transpose_a, c.transpose_b);
    const std::vector<float> a = Random(c.batch * c.m * c.k, 1), b = Random(c.batch * c.k * c.n, 2);
    const std::vector<float> bias = Random(c.n, 3);
    std::vector<float> plain(c.batch * c.m * c.n), with_relu(c.batch * c.m * c.n);
    for (int64_t i = 0; i < c.batch; ++i) {
      for (int64_t row = 0; row < c.m; ++row) {
        for (int64_t column = 0; column < c.n; ++column) {
          float sum = 0;
          for (int64_t k = 0; k < c.k; ++k) {
            const float from_a = a[i * c.m * c.k + (c.transpose_a ? k * c.m + row : row * c.k + k)];
            const float from_b = b[i * c.k * c.n + (c.transpose_b ? column * c.k + k : k * c.n + column)];
            sum = std::fma(from_a, from_b, sum);
          }
          const int64_t at = (i * c.m + row) * c.n + column;
          plain[at] = sum;
          with_relu[at] = std::max(sum + bias[column], 0.0f);
        }
      }
    }
    for (const int threads : {1, 2, 3, 7}) {
      CAPTURE(threads);
      CHECK(Multiply(c, a, b, {}, false, threads) == plain);
      CHECK(Multiply(c, a, b, bias, true, threads) == with_relu);
    }
  }
}

TEST_CASE("NaN passes through ReLU") {
  const Case c = {1, 1, 1, 1, false, false};
  CHECK(std::isnan(Multiply(c, {NAN}, {1}, {0}, true, 1)[0]));
}

}  // namespace
}  // namespace official::compute
