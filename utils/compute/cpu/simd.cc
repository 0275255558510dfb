#include "utils/compute/cpu/simd.h"

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
  // Intel's processors with AVX-512 FP16 are those with AMX.
  return HasAvx512Bf16() && __builtin_cpu_is("intel") && __builtin_cpu_supports("avx512fp16");
}

}  // namespace official::compute
