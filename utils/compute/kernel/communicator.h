// Communicator: how a device sums tensors with the other devices of a group that trains together. Lent to the device,
// whose AllReduce kernels use it, by utils/distribute, which owns the group.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
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
  // Whether `value` is true on every device; returns when all have asked. For devices that share variables. An error of
  // another device ends the wait: Cancelled.
  virtual absl::StatusOr<bool> AllTrue(bool value) {
    return absl::UnimplementedError("the devices of this group share no variables");
  }
  // Asked now and then by the device's thread while it waits for the device: an error once the sums will not come.
  virtual absl::Status CheckWait() { return absl::OkStatus(); }
  // Whether what Start and Finish give the device can be part of a Recording.
  virtual bool can_be_recorded() const { return false; }
};

class CommunicatorGroup {
 public:
  virtual ~CommunicatorGroup() = default;

  // Used by the thread of device `rank` only.
  virtual Communicator& communicator(int rank) = 0;
  // Ends all waits, now and later, with Cancelled: a device has failed.
  virtual void Abort() = 0;
  // After Abort, when no device is in a step: forgets what was started. FailedPrecondition if the group cannot be used
  // again, nor the programs that use it.
  virtual absl::Status Reset() = 0;
};

}  // namespace official::compute
