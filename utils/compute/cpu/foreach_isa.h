// Compiles the file OFFICIAL_ISA_FILE twice: in namespace avx512 for AVX-512 F, VL, BW, DQ and CD, in namespace avx2
// for the x86-64-v3 that the whole program is compiled for. It is meant for kernels that keep their sums in registers
// by hand (vec-inl.h); a simple loop is better given to WithSimd (simd.h). HasAvx512() says which of the two may run.
//
// If OFFICIAL_ISA_WITH_BF16 is defined, there is a third, in namespace avx512bf16, for AVX-512 BF16
// (CpuIsa() >= Isa::kAvx512Bf16).
//
// Include it inside the unnamed namespace of the one source file that uses the kernels. It has no include guard, so
// that a program may have several such files. OFFICIAL_ISA_FILE must not be the first to include a header with inline
// functions: they would be compiled for AVX-512 and might then serve code that runs everywhere.

#define OFFICIAL_ISA_AVX512 1
#ifdef OFFICIAL_ISA_WITH_BF16
#define OFFICIAL_ISA_BF16 1
#pragma GCC push_options
#pragma GCC target("avx512f,avx512vl,avx512bw,avx512dq,avx512cd,avx512bf16")
namespace avx512bf16 {
#include OFFICIAL_ISA_FILE
}  // namespace avx512bf16
#pragma GCC pop_options
#undef OFFICIAL_ISA_BF16
#undef OFFICIAL_ISA_WITH_BF16
#endif

#define OFFICIAL_ISA_BF16 0
#pragma GCC push_options
#pragma GCC target("avx512f,avx512vl,avx512bw,avx512dq,avx512cd")
namespace avx512 {
#include OFFICIAL_ISA_FILE
}  // namespace avx512
#pragma GCC pop_options
#undef OFFICIAL_ISA_AVX512

#define OFFICIAL_ISA_AVX512 0
namespace avx2 {
#include OFFICIAL_ISA_FILE
}  // namespace avx2
#undef OFFICIAL_ISA_AVX512
#undef OFFICIAL_ISA_BF16
#undef OFFICIAL_ISA_FILE
