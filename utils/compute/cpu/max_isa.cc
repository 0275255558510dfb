#include "utils/compute/cpu/max_isa.h"

#include <cstdlib>
#include <optional>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace official::compute {
namespace {

constexpr char kVariable[] = "OFFICIAL_MAX_ISA";

// Empty if it is not set.
absl::string_view Limit() {
  const char* const limit = std::getenv(kVariable);
  return limit == nullptr ? "" : limit;
}

struct IsaNames {
  const char *name, *limit;
};
constexpr IsaNames kIsas[] = {{"AVX2", "avx2"}, {"AVX-512", "avx512"}, {"AVX-512 BF16", "avx512_bf16"}, {"AMX", ""}};

std::optional<Isa> Parse(absl::string_view limit) {
  for (const Isa isa : {Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16, Isa::kAmx}) {
    if (limit == kIsas[static_cast<int>(isa)].limit) return isa;
  }
  return std::nullopt;
}

}  // namespace

const char* IsaName(Isa isa) { return kIsas[static_cast<int>(isa)].name; }

std::string IsaLimit(Isa isa) {
  return isa == Isa::kAmx ? "" : absl::StrCat(kVariable, "=", kIsas[static_cast<int>(isa)].limit);
}

Isa MaxIsa() { return Parse(Limit()).value_or(Isa::kAmx); }

Isa IsaThatPays(Isa newest, bool slow_pairs) {
  return newest == Isa::kAvx512Bf16 && slow_pairs && MaxIsa() != Isa::kAvx512Bf16 ? Isa::kAvx512 : newest;
}

std::string WhyBFloat16InFloat32(bool slow_pairs) {
  if (MaxIsa() < Isa::kAvx512Bf16) return absl::StrCat(IsaLimit(MaxIsa()), " allows no others");
  return slow_pairs ? "this processor multiplies bfloat16 fast only with AMX, which may not be used here (a virtual "
                      "machine can hide it, ONEDNN_MAX_CPU_ISA forbid it)"
                    : "this processor has no others";
}

absl::Status CheckMaxIsa() {
  if (Parse(Limit())) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("environment variable ", kVariable, "=", absl::CHexEscape(Limit()),
                                                 ": must be avx2, avx512 or avx512_bf16, for nothing newer, or unset, ",
                                                 "for no limit"));
}

}  // namespace official::compute
