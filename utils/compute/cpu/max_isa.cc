#include "utils/compute/cpu/max_isa.h"

#include <cstdlib>
#include <cstring>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace official::compute {
namespace {

constexpr char kVariable[] = "OFFICIAL_MAX_ISA", kAvx2[] = "avx2";

// Empty if it is not set.
const char* Limit() {
  const char* const limit = std::getenv(kVariable);
  return limit == nullptr ? "" : limit;
}

}  // namespace

bool IsLimitedToAvx2() { return std::strcmp(Limit(), kAvx2) == 0; }

absl::Status CheckMaxIsa() {
  if (Limit()[0] == '\0' || IsLimitedToAvx2()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("environment variable ", kVariable, "=", absl::CHexEscape(Limit()),
                                                 ": must be ", kAvx2, ", for no AVX-512, or unset, for no limit"));
}

}  // namespace official::compute
