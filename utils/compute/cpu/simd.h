// Run-time choice of the instruction set for our own kernels. The binary is compiled for x86-64-v3 (AVX2, FMA); a loop
// given to WithSimd is compiled twice and runs with AVX-512 where the machine has it.
#pragma once

#include <utility>

namespace official::compute {

#define OFFICIAL_AVX512 "avx512f,avx512vl,avx512bw,avx512dq,avx512cd,prefer-vector-width=512"

// True if the machine has Isa::kAvx512 or kAvx512Bf16, and OFFICIAL_MAX_ISA does not forbid it (max_isa.h). Whether the
// latter pays CpuIsa() says (onednn.h).
bool HasAvx512();
bool HasAvx512Bf16();

// True if the processor is made to multiply bfloat16 with AMX, which a virtual machine may hide: Intel's since Sapphire
// Rapids. Trainings with vectors' products of pairs are slower there than in float32 (docs/performance.md). A virtual
// machine that shows an older processor with AVX-512 BF16 is not found out.
bool HasSlowPairs();

// `flatten` inlines the whole loop into the function that has the instruction set, so the compiler vectorizes it there.
template <typename F>
__attribute__((target(OFFICIAL_AVX512), flatten, noinline)) void RunAvx512(F&& f) {
  f();
}
template <typename F>
__attribute__((flatten, noinline)) void RunAvx2(F&& f) {
  f();
}

// Runs f, a lambda with a simple loop in it, with the widest vectors that the machine has. What f calls must be inline:
// functions of other files stay compiled for x86-64-v3.
template <typename F>
void WithSimd(F&& f) {
  if (HasAvx512()) {
    RunAvx512(f);
  } else {
    RunAvx2(f);
  }
}

}  // namespace official::compute
