// Communicator: how a device sums tensors with the other devices of a group that trains together. Made by
// utils/distribute and lent to the device, whose AllReduce kernels use it.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace official::compute {

class Communicator {
 public:
  virtual ~Communicator() = default;

  // float32 elements in the memory of the device.
  struct Buffer {
    float* data;
    int64_t elements;
  };

  // Gives a pack of buffers to be summed in place, element by element over all devices. Their content is final. Returns
  // at once. Every device gives packs of the same sizes in the same order.
  virtual absl::Status Start(absl::Span<const Buffer> pack) = 0;
  // Returns when all packs that this device gave hold the sums. An error of another device ends the wait: Cancelled.
  virtual absl::Status Finish() = 0;
};

}  // namespace official::compute
