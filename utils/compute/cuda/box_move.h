// Copies of boxes in a GPU's memory, with or without zeros around them. Only for CUDA code.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "utils/compute/core/box_copy.h"

namespace official::compute {

// Gives the stream a kernel that moves a box between the arrays that lie at these addresses.
using BoxMove = std::function<absl::Status(cudaStream_t stream, const void* from, void* to)>;

// The most dimensions that the runs of a box may have.
inline constexpr int kMaxMoveDims = 8;

// Writes the box alone.
BoxMove MoveBox(const BoxCopy& box);
// Writes the whole target, which has `target_bytes`: zeros where the box is not.
BoxMove MoveBoxAndPad(const BoxCopy& box, int64_t target_bytes);

}  // namespace official::compute
