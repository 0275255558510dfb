// The layout of a kernel's scratch memory.
#pragma once

#include <cstdint>

#include "utils/compute/kernel/kernel.h"

namespace official::compute {

// Places parts one after the other, each aligned to 64 bytes.
class ScratchPlan {
 public:
  // Adds a part and returns its offset.
  int64_t Add(int64_t bytes) {
    const int64_t offset = bytes_;
    bytes_ += (bytes + 63) / 64 * 64;
    return offset;
  }
  int64_t bytes() const { return bytes_; }

 private:
  int64_t bytes_ = 0;
};

inline void* ScratchAt(const KernelArgs& args, int64_t offset) { return static_cast<char*>(args.scratch) + offset; }

}  // namespace official::compute
