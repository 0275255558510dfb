#include "utils/compute/cpu/simd.h"

#include <cpuid.h>

#include "utils/compute/cpu/max_isa.h"

namespace official::compute {

bool HasAvx512() {
  static const bool result = [] {
    if (MaxIsa() < Isa::kAvx512) return false;
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512cd");
  }();
  return result;
}

bool HasAvx512Bf16() {
  static const bool result = HasAvx512() && MaxIsa() >= Isa::kAvx512Bf16 && __builtin_cpu_supports("avx512bf16");
  return result;
}

bool HasSlowPairs() {
  // Intel's processors with AVX-512 BF16 and FP16 are those with AMX. FP16 is no name that all compilers know.
  static const bool result = [] {
    unsigned a, b, c, d;
    constexpr unsigned kFp16 = 1u << 23;
    return HasAvx512Bf16() && __builtin_cpu_is("intel") && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & kFp16) != 0;
  }();
  return result;
}

}  // namespace official::compute
