#include "utils/compute/cpu/simd.h"

#include <cstdlib>
#include <cstring>

namespace official::compute {

bool HasAvx512() {
  static const bool result = [] {
    const char* limit = std::getenv("OFFICIAL_MAX_ISA");
    if (limit != nullptr && std::strcmp(limit, "avx2") == 0) return false;
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512cd");
  }();
  return result;
}

bool HasAvx512Bf16() {
  static const bool result = HasAvx512() && __builtin_cpu_supports("avx512bf16");
  return result;
}

}  // namespace official::compute
