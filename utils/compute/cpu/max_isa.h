// The environment variable OFFICIAL_MAX_ISA: a limit on the instruction set that kernels choose at run time, which is
// the newest one that pays.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace official::compute {

// Sets of vector instructions, each with those before it. Every program needs AVX2.
enum class Isa {
  kAvx2,
  kAvx512,      // AVX-512 F, VL, BW, DQ, CD
  kAvx512Bf16,  // products of pairs of bfloat16
  kAmx,         // products of tiles of bfloat16
};
// "AVX2", "AVX-512", "AVX-512 BF16", "AMX".
const char* IsaName(Isa isa);
// "OFFICIAL_MAX_ISA=avx2", what makes every machine use no more than AVX2; empty for kAmx.
std::string IsaLimit(Isa isa);

// The newest set that may be used, whatever the machine has: that of OFFICIAL_MAX_ISA=avx2, avx512 or avx512_bf16, and
// kAmx without the variable.
Isa MaxIsa();

// The newest set that pays on a processor that has `newest` and may use it. With `slow_pairs`, products of pairs of
// bfloat16 do not, unless OFFICIAL_MAX_ISA=avx512_bf16 asks for them: AVX-512 it is then.
Isa IsaThatPays(Isa newest, bool slow_pairs);

// Why products of bfloat16 are computed in float32, where they are: "this processor has no others".
std::string WhyBFloat16InFloat32(bool slow_pairs);

// Returns InvalidArgument if the variable has any other value. Unset or empty it limits nothing.
absl::Status CheckMaxIsa();

}  // namespace official::compute
