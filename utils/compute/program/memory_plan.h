// Places buffers with known lifetimes into one arena so that those alive at the same time do not overlap.
#pragma once

#include <cstdint>
#include <vector>

namespace official::compute {

struct BufferRequest {
  int64_t bytes = 0;
  int first_call = 0, last_call = 0;  // the buffer is alive in [first_call, last_call]
};

struct MemoryPlan {
  std::vector<int64_t> offsets;  // one per request, multiples of 64
  int64_t arena_bytes = 0;
};

// Places the largest buffers first, each into the smallest gap that fits among the buffers that live at the same time.
MemoryPlan PlanMemory(const std::vector<BufferRequest>& requests);

}  // namespace official::compute
