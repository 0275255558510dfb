// Quotients as kernels find them, on the host.
#include "utils/compute/cuda/divisor.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <vector>

namespace official::compute {
namespace {

// Calls f with numbers of up to 32 bits: small ones, and those around powers of two and around multiples of `d`.
template <typename F>
void ForNumbers(uint64_t d, F f) {
  const auto around = [&](uint64_t n) {
    for (uint64_t k = n < 2 ? 0 : n - 2; k <= n + 2 && k <= UINT32_MAX; ++k) f(static_cast<uint32_t>(k));
  };
  for (uint64_t n = 0; n < 300; ++n) around(n);
  for (int bit = 8; bit <= 32; ++bit) around(uint64_t{1} << bit);
  for (uint64_t times = 1; times * d <= UINT32_MAX; times = times * 3 + 1) around(times * d);
  around(UINT32_MAX / d * d);
}

TEST_CASE("Quotients of all sizes are those of the operator") {
  std::vector<uint32_t> divisors;
  ForNumbers(3, [&](uint32_t d) {
    if (d > 0) divisors.push_back(d);
  });
  for (const uint32_t d : divisors) {
    const Divisor<uint32_t> divisor(d);
    const Divisor<uint64_t> wide(d);
    REQUIRE(divisor.value() == d);
    bool equal = true;
    ForNumbers(d, [&](uint32_t n) { equal &= divisor.Quotient(n) == n / d && wide.Quotient(n) == n / d; });
    CAPTURE(d);
    CHECK(equal);
  }
}

TEST_CASE("Without a number it divides by 1") {
  CHECK(Divisor<uint32_t>().Quotient(UINT32_MAX) == UINT32_MAX);
  CHECK(Divisor<uint64_t>().Quotient(UINT64_MAX) == UINT64_MAX);
}

}  // namespace
}  // namespace official::compute
