#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "utils/compute/core/bfloat16.h"
#include "utils/compute/core/random.h"
#include "utils/compute/cpu/max_isa.h"
#include "utils/compute/cpu/onednn.h"
#include "utils/compute/cpu/simd.h"

namespace official::compute {
namespace {

using dnnl::memory;

std::vector<BFloat16> RandomNumbers(int64_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<BFloat16> numbers;
  for (int64_t i = 0; i < n; ++i) numbers.push_back(BFloat16(2 * UniformFloat(random()) - 1));
  return numbers;
}

TEST_CASE("Products by oneDNN's code for AMX are those of loops") {
  REQUIRE(CpuIsa() == Isa::kAmx);
  // Whole tiles, and a part of one in each dimension.
  for (const auto& [m, n, k] : {std::tuple{32, 64, 128}, {33, 17, 70}, {40, 19, 34}, {70, 33, 100}}) {
    CAPTURE(m, n, k);
    const std::vector<BFloat16> a = RandomNumbers(m * k, 1), b = RandomNumbers(k * n, 2);
    std::vector<float> y(m * n);
    const memory::desc a_desc({m, k}, memory::data_type::bf16, memory::format_tag::ab);
    const memory::desc b_desc({k, n}, memory::data_type::bf16, memory::format_tag::ab);
    const memory::desc y_desc({m, n}, memory::data_type::f32, memory::format_tag::ab);
    const dnnl::matmul::primitive_desc pd({a_desc, b_desc, y_desc}, OnednnAttr(), OnednnEngine());
    CHECK_THAT(OnednnAlgorithm(pd), Catch::Contains("amx"));
    std::vector<char> scratchpad(pd.scratchpad_desc().get_size() + 64);
    const OnednnPrimitive product(dnnl::matmul(pd), {{DNNL_ARG_SRC, a_desc},
                                                     {DNNL_ARG_WEIGHTS, b_desc},
                                                     {DNNL_ARG_DST, y_desc},
                                                     {DNNL_ARG_SCRATCHPAD, pd.scratchpad_desc()}});
    REQUIRE(product.Run({a.data(), b.data(), y.data(), scratchpad.data()}).ok());
    for (int64_t row = 0; row < m; ++row) {
      for (int64_t column = 0; column < n; ++column) {
        double sum = 0;
        for (int64_t i = 0; i < k; ++i) {
          sum += static_cast<double>(static_cast<float>(a[row * k + i])) * static_cast<float>(b[i * n + column]);
        }
        REQUIRE(std::abs(y[row * n + column] - sum) < 1e-5);
      }
    }
  }
}

// By isa_limit_test and onednn_limit_test, each with a variable of the environment that forbids AMX. The former asks
// for AVX-512 BF16, which the latter leaves to oneDNN.
TEST_CASE("What forbids AMX leaves AVX-512 BF16, if it pays or is asked for", "[.limited]") {
  const bool is_asked_for = MaxIsa() == Isa::kAvx512Bf16;
  CHECK(CpuIsa() == (is_asked_for || !HasSlowPairs() ? Isa::kAvx512Bf16 : Isa::kAvx512));
  const memory::desc desc({64, 64}, memory::data_type::bf16, memory::format_tag::ab);
  const dnnl::matmul::primitive_desc pd({desc, desc, desc}, OnednnAttr(), OnednnEngine());
  CHECK_THAT(OnednnAlgorithm(pd), Catch::EndsWith("avx512_core_bf16"));
}

}  // namespace
}  // namespace official::compute
