#include "utils/compute/cuda_emulation/fiber.h"

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#else
#define ASAN_UNPOISON_MEMORY_REGION(address, bytes) ((void)(address), (void)(bytes))
#define __sanitizer_start_switch_fiber(...) ((void)0)
#define __sanitizer_finish_switch_fiber(...) ((void)0)
#endif

// Saves the registers that a function must keep and the stack pointer in *save, and goes on where `load` was saved.
extern "C" void OfficialSwitchFiber(void** save, void* load);
asm(R"(
.text
.globl OfficialSwitchFiber
.hidden OfficialSwitchFiber
.type OfficialSwitchFiber,@function
OfficialSwitchFiber:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp,(%rdi)
  movq %rsi,%rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size OfficialSwitchFiber,.-OfficialSwitchFiber
)");

namespace official::compute::cuda_emulation {
namespace {

constexpr int kSavedRegisters = 6;
constexpr size_t kPage = 4096;

Fibers* resuming = nullptr;  // for Start

}  // namespace

void Fibers::Reserve(void (*function)()) {
  function_ = function;
  void* const stacks = mmap(nullptr, kStacksBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                            /*fd=*/-1, 0);
  if (stacks == MAP_FAILED) {
    std::perror("no stacks for emulated threads");
    std::abort();
  }
  // Each stack grows down to a page that nobody may touch.
  for (int i = 0; i < kMaxCount; ++i) mprotect(static_cast<char*>(stacks) + i * kStackBytes, kPage, PROT_NONE);
  stacks_ = reinterpret_cast<uintptr_t>(stacks);
}

void Fibers::Start() {
  Fibers& fibers = *resuming;
  __sanitizer_finish_switch_fiber(nullptr, &fibers.scheduler_stack_, &fibers.scheduler_stack_bytes_);
  fibers.function_();
  std::abort();  // not reached
}

void Fibers::Prepare(int fiber) {
  auto** sp = reinterpret_cast<void**>(StackOf(fiber + 1));
  *--sp = nullptr;  // as if Start had been called
  *--sp = reinterpret_cast<void*>(&Start);
  for (int i = 0; i < kSavedRegisters; ++i) *--sp = nullptr;
  fibers_[fiber] = {.stack_pointer = sp};
}

void Fibers::Resume(int fiber) {
  resuming = this;
  running_ = fiber;
  __sanitizer_start_switch_fiber(&scheduler_.fake_stack, reinterpret_cast<void*>(StackOf(fiber)), kStackBytes);
  OfficialSwitchFiber(&scheduler_.stack_pointer, fibers_[fiber].stack_pointer);
  __sanitizer_finish_switch_fiber(scheduler_.fake_stack, nullptr, nullptr);
}

void Fibers::Pause() {
  Fiber& fiber = fibers_[running_];
  __sanitizer_start_switch_fiber(&fiber.fake_stack, scheduler_stack_, scheduler_stack_bytes_);
  OfficialSwitchFiber(&fiber.stack_pointer, scheduler_.stack_pointer);
  __sanitizer_finish_switch_fiber(fiber.fake_stack, &scheduler_stack_, &scheduler_stack_bytes_);
}

void Fibers::End() {
  // The sanitizer frees the fake stack of a fiber that does not come back.
  __sanitizer_start_switch_fiber(nullptr, scheduler_stack_, scheduler_stack_bytes_);
  OfficialSwitchFiber(&fibers_[running_].stack_pointer, scheduler_.stack_pointer);
  std::abort();  // not reached
}

void Fibers::Abandon() {
  // The sanitizer still guards the variables of functions that never returned.
  ASAN_UNPOISON_MEMORY_REGION(reinterpret_cast<void*>(stacks_), kStacksBytes);
}

}  // namespace official::compute::cuda_emulation
