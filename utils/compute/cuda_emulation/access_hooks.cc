// The functions that the compiler calls before each access of a kernel (-fsanitize=thread, of which only the calls are
// used), and where an address is not aligned or an index is out of bounds (-fsanitize=alignment,bounds).

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "utils/compute/cuda_emulation/grid.h"

// Under a sanitizer of the host these functions are the sanitizer's.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

using official::compute::cuda_emulation::CheckAccess;
using official::compute::cuda_emulation::CheckVolatileRead;
using official::compute::cuda_emulation::FailKernel;
using official::compute::cuda_emulation::InKernel;
using official::compute::cuda_emulation::ReportMisaligned;

namespace {

// As the compiler lays them out.
struct SourceLocation {
  const char* file;
  uint32_t line, column;
};
struct TypeMismatch {
  SourceLocation location;
  const void* type;
  uint8_t log_alignment;
};
struct OutOfBounds {
  SourceLocation location;
};

std::string Describe(const SourceLocation& location) {
  return absl::StrCat(location.file, ":", location.line, ":", location.column);
}

void Fail(const std::string& what, const SourceLocation& where) {
  FailKernel(what, Describe(where));
  std::fprintf(stderr, "%s: %s\n", Describe(where).c_str(), what.c_str());
  std::abort();
}

}  // namespace

#define OFFICIAL_ACCESS(name, bytes, write) \
  extern "C" void __tsan_##name(void* address) { CheckAccess(address, bytes, write, __builtin_return_address(0)); }
OFFICIAL_ACCESS(read1, 1, false)
OFFICIAL_ACCESS(read2, 2, false)
OFFICIAL_ACCESS(read4, 4, false)
OFFICIAL_ACCESS(read8, 8, false)
OFFICIAL_ACCESS(read16, 16, false)
OFFICIAL_ACCESS(write1, 1, true)
OFFICIAL_ACCESS(write2, 2, true)
OFFICIAL_ACCESS(write4, 4, true)
OFFICIAL_ACCESS(write8, 8, true)
OFFICIAL_ACCESS(write16, 16, true)
OFFICIAL_ACCESS(unaligned_read2, 2, false)
OFFICIAL_ACCESS(unaligned_read4, 4, false)
OFFICIAL_ACCESS(unaligned_read8, 8, false)
OFFICIAL_ACCESS(unaligned_read16, 16, false)
OFFICIAL_ACCESS(unaligned_write2, 2, true)
OFFICIAL_ACCESS(unaligned_write4, 4, true)
OFFICIAL_ACCESS(unaligned_write8, 8, true)
OFFICIAL_ACCESS(unaligned_write16, 16, true)
OFFICIAL_ACCESS(vptr_read, sizeof(void*), false)
OFFICIAL_ACCESS(volatile_write1, 1, true)
OFFICIAL_ACCESS(volatile_write2, 2, true)
OFFICIAL_ACCESS(volatile_write4, 4, true)
OFFICIAL_ACCESS(volatile_write8, 8, true)

#define OFFICIAL_VOLATILE_READ(bytes)                               \
  extern "C" void __tsan_volatile_read##bytes(void* address) {      \
    CheckVolatileRead(address, bytes, __builtin_return_address(0)); \
  }
OFFICIAL_VOLATILE_READ(1)
OFFICIAL_VOLATILE_READ(2)
OFFICIAL_VOLATILE_READ(4)
OFFICIAL_VOLATILE_READ(8)

extern "C" {
void __tsan_read_range(void* address, size_t bytes) { CheckAccess(address, bytes, false, __builtin_return_address(0)); }
void __tsan_write_range(void* address, size_t bytes) { CheckAccess(address, bytes, true, __builtin_return_address(0)); }
void __tsan_vptr_update(void**, void*) {}
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}

// Atomic operations of the C++ library, in what a kernel's source does on the host.
uint8_t __tsan_atomic8_load(const volatile uint8_t* p, int) { return __atomic_load_n(p, __ATOMIC_SEQ_CST); }
uint32_t __tsan_atomic32_load(const volatile uint32_t* p, int) { return __atomic_load_n(p, __ATOMIC_SEQ_CST); }
uint64_t __tsan_atomic64_load(const volatile uint64_t* p, int) { return __atomic_load_n(p, __ATOMIC_SEQ_CST); }
void __tsan_atomic32_store(volatile uint32_t* p, uint32_t v, int) { __atomic_store_n(p, v, __ATOMIC_SEQ_CST); }
void __tsan_atomic8_store(volatile uint8_t* p, uint8_t v, int) { __atomic_store_n(p, v, __ATOMIC_SEQ_CST); }
uint8_t __tsan_atomic8_exchange(volatile uint8_t* p, uint8_t v, int) {
  return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST);
}
uint32_t __tsan_atomic32_exchange(volatile uint32_t* p, uint32_t v, int) {
  return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST);
}
uint32_t __tsan_atomic32_fetch_or(volatile uint32_t* p, uint32_t v, int) {
  return __atomic_fetch_or(p, v, __ATOMIC_SEQ_CST);
}
uint32_t __tsan_atomic32_fetch_add(volatile uint32_t* p, uint32_t v, int) {
  return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST);
}
uint32_t __tsan_atomic32_fetch_sub(volatile uint32_t* p, uint32_t v, int) {
  return __atomic_fetch_sub(p, v, __ATOMIC_SEQ_CST);
}
uint64_t __tsan_atomic64_fetch_add(volatile uint64_t* p, uint64_t v, int) {
  return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST);
}

void __ubsan_handle_type_mismatch_v1(const TypeMismatch* data, uintptr_t address) {
  const size_t alignment = size_t{1} << data->log_alignment;
  ReportMisaligned(reinterpret_cast<const void*>(address), alignment, Describe(data->location));
  Fail(absl::StrCat("an address that is no multiple of ", alignment), data->location);
}
void __ubsan_handle_out_of_bounds(const OutOfBounds* data, uintptr_t index) {
  Fail(absl::StrCat("index ", static_cast<int64_t>(index), " is out of the array's bounds"), data->location);
}
}

#endif
