// Fibers: functions with stacks of their own, which take turns on one thread of the program. A scheduler, which is the
// code that made them, resumes one after another.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace official::compute::cuda_emulation {

class Fibers {
 public:
  static constexpr int kMaxCount = 1024;
  static constexpr size_t kStackBytes = 256 << 10;

  // Reserves the stacks, once. Each fiber runs `function`, which calls End() instead of returning.
  void Reserve(void (*function)());
  bool Reserved() const { return stacks_ != 0; }

  // Makes the fiber start anew when it is resumed.
  void Prepare(int fiber);
  // Runs the fiber until it pauses or ends.
  void Resume(int fiber);

  // The running fiber calls these; they go back to where it was resumed.
  void Pause();
  [[noreturn]] void End();

  // Gives up the fibers that have not ended. What they hold is never freed.
  void Abandon();

  // True if a fiber calls this.
  bool OnFiber() const {
    return reinterpret_cast<uintptr_t>(__builtin_frame_address(0)) - stacks_ < kStacksBytes && Reserved();
  }
  // The lowest address of the fiber's stack.
  uintptr_t StackOf(int fiber) const { return stacks_ + fiber * kStackBytes; }

 private:
  static constexpr size_t kStacksBytes = kMaxCount * kStackBytes;

  struct Fiber {
    void* stack_pointer = nullptr;
    void* fake_stack = nullptr;  // of the address sanitizer
  };

  static void Start();

  void (*function_)() = nullptr;
  uintptr_t stacks_ = 0;
  std::array<Fiber, kMaxCount> fibers_;
  int running_ = 0;
  // The scheduler's, while a fiber runs.
  Fiber scheduler_;
  const void* scheduler_stack_ = nullptr;
  size_t scheduler_stack_bytes_ = 0;
};

}  // namespace official::compute::cuda_emulation
