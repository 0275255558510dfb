#include "utils/compute/cpu/max_isa.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <string>

namespace official::compute {
namespace {

using Catch::Matchers::Contains;

TEST_CASE("OFFICIAL_MAX_ISA is avx2 or not set") {
  unsetenv("OFFICIAL_MAX_ISA");
  CHECK(CheckMaxIsa().ok());
  CHECK_FALSE(IsLimitedToAvx2());
  setenv("OFFICIAL_MAX_ISA", "", 1);
  CHECK(CheckMaxIsa().ok());
  CHECK_FALSE(IsLimitedToAvx2());
  setenv("OFFICIAL_MAX_ISA", "avx2", 1);
  CHECK(CheckMaxIsa().ok());
  CHECK(IsLimitedToAvx2());
}

TEST_CASE("Any other OFFICIAL_MAX_ISA is refused with its value and those that there are") {
  for (const char* value : {"AVX2", "avx", "sse4", "avx512", " avx2", "1"}) {
    setenv("OFFICIAL_MAX_ISA", value, 1);
    const absl::Status status = CheckMaxIsa();
    CHECK(absl::IsInvalidArgument(status));
    CHECK_THAT(std::string(status.message()), Contains(std::string("OFFICIAL_MAX_ISA=") + value) && Contains("avx2"));
  }
  setenv("OFFICIAL_MAX_ISA", "avx2\n", 1);
  CHECK_THAT(std::string(CheckMaxIsa().message()), Contains("OFFICIAL_MAX_ISA=avx2\\n:"));
}

}  // namespace
}  // namespace official::compute
