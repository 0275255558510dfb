#include "utils/compute/cpu/max_isa.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <string>

namespace official::compute {
namespace {

using Catch::Matchers::Contains;

TEST_CASE("OFFICIAL_MAX_ISA names a set of instructions or is not set") {
  unsetenv("OFFICIAL_MAX_ISA");
  CHECK(CheckMaxIsa().ok());
  CHECK(MaxIsa() == Isa::kAmx);
  const std::pair<const char*, Isa> limits[] = {
      {"", Isa::kAmx}, {"avx2", Isa::kAvx2}, {"avx512", Isa::kAvx512}, {"avx512_bf16", Isa::kAvx512Bf16}};
  for (const auto& [limit, isa] : limits) {
    setenv("OFFICIAL_MAX_ISA", limit, 1);
    CHECK(CheckMaxIsa().ok());
    CHECK(MaxIsa() == isa);
  }
}

TEST_CASE("A set of instructions has a name, and says how to be the newest one that is used") {
  CHECK(IsaName(Isa::kAvx512Bf16) == std::string("AVX-512 BF16"));
  CHECK(IsaLimit(Isa::kAvx512Bf16) == "OFFICIAL_MAX_ISA=avx512_bf16");
  CHECK(IsaLimit(Isa::kAmx).empty());
}

TEST_CASE("Slow pairs of bfloat16 are multiplied only if OFFICIAL_MAX_ISA asks for them") {
  unsetenv("OFFICIAL_MAX_ISA");
  CHECK(IsaThatPays(Isa::kAvx512Bf16, /*slow_pairs=*/true) == Isa::kAvx512);
  CHECK(IsaThatPays(Isa::kAvx512Bf16, /*slow_pairs=*/false) == Isa::kAvx512Bf16);
  for (const Isa isa : {Isa::kAvx2, Isa::kAvx512, Isa::kAmx}) CHECK(IsaThatPays(isa, /*slow_pairs=*/true) == isa);
  setenv("OFFICIAL_MAX_ISA", "avx512_bf16", 1);
  CHECK(IsaThatPays(Isa::kAvx512Bf16, /*slow_pairs=*/true) == Isa::kAvx512Bf16);
}

TEST_CASE("Why products of bfloat16 are computed in float32") {
  unsetenv("OFFICIAL_MAX_ISA");
  CHECK(WhyBFloat16InFloat32(/*slow_pairs=*/false) == "this processor has no others");
  CHECK_THAT(WhyBFloat16InFloat32(/*slow_pairs=*/true), Contains("fast only with AMX"));
  setenv("OFFICIAL_MAX_ISA", "avx512_bf16", 1);
  CHECK(WhyBFloat16InFloat32(/*slow_pairs=*/false) == "this processor has no others");
  setenv("OFFICIAL_MAX_ISA", "avx512", 1);
  CHECK(WhyBFloat16InFloat32(/*slow_pairs=*/false) == "OFFICIAL_MAX_ISA=avx512 allows no others");
}

TEST_CASE("Any other OFFICIAL_MAX_ISA is refused with its value and those that there are") {
  for (const char* value : {"AVX2", "avx", "sse4", "avx512f", " avx2", "amx", "1"}) {
    setenv("OFFICIAL_MAX_ISA", value, 1);
    const absl::Status status = CheckMaxIsa();
    CHECK(absl::IsInvalidArgument(status));
    CHECK_THAT(std::string(status.message()),
               Contains(std::string("OFFICIAL_MAX_ISA=") + value) && Contains("avx2, avx512 or avx512_bf16"));
  }
  setenv("OFFICIAL_MAX_ISA", "avx2\n", 1);
  CHECK_THAT(std::string(CheckMaxIsa().message()), Contains("OFFICIAL_MAX_ISA=avx2\\n:"));
}

}  // namespace
}  // namespace official::compute
