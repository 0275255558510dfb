// Starts the program that links it once more, with libamx_emulation.so preloaded, unless the processor has AMX itself.
// The program ends, and all is well, on a processor that lacks AVX-512 BF16, and in builds with sanitizers, whose
// library must be the first one.

#include <cpuid.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace {

bool ProcessorHasAmx() {
  unsigned a, b, c, d;
  constexpr unsigned kBFloat16AndTiles = 1u << 22 | 1u << 24;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & kBFloat16AndTiles) == kBFloat16AndTiles;
}

__attribute__((constructor)) void StartWithAmx(int, char** argv, char**) {
  if (ProcessorHasAmx()) return;
  constexpr char kVariable[] = "LD_PRELOAD", kLibrary[] = "utils/compute/cpu/amx_emulation/libamx_emulation.so";
  if (std::getenv(kVariable) != nullptr) {
    unsetenv(kVariable);
    return;
  }
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  std::puts("not run: a sanitizer");
  _exit(0);
#endif
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx512bf16")) {
    std::puts("not run: this processor has no AVX-512 BF16");
    _exit(0);
  }
  if (access(kLibrary, R_OK) == 0) {
    setenv(kVariable, kLibrary, 1);
    execv("/proc/self/exe", argv);
  }
  std::perror(kLibrary);
  _exit(1);
}

}  // namespace
