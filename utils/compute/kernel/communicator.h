// Communicator: how a device sums tensors with the other devices of a group that trains together. utils/distribute owns
// the group and lends it to the device, whose AllReduce kernels use it.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace official::compute {

class Communicator {
 public:
  virtual ~Communicator() = default;

  // A buffer of float32 elements in the memory of the device.
  struct Buffer {
    float* data;
    int64_t elements;
  };

  // Starts summing a pack of buffers in place, element by element over all devices, and returns at once. Their content
  // must be final. Every device gives packs of the same sizes in the same order.
  virtual absl::Status Start(absl::Span<const Buffer> pack) = 0;
  // Returns when all packs that this device gave hold the sums. An error of another device ends the wait with
  // Cancelled.
  virtual absl::Status Finish() = 0;
  // True if `value` is true on every device; returns when all have asked. This is for devices that share variables. An
  // error of another device ends the wait with Cancelled.
  virtual absl::StatusOr<bool> AllTrue(bool value) {
    return absl::UnimplementedError("the devices of this group share no variables");
  }
  // The device's thread calls this now and then while it waits for the device; `begins` is true the first time in each
  // wait. Returns an error once the sums will not come.
  virtual absl::Status CheckWait(bool begins) { return absl::OkStatus(); }
  // The device calls this when it has failed, after which it makes no sums any more. Ends what the other devices of
  // this process wait for.
  virtual void DeviceFailed(const absl::Status& error) {}
  // True if the work that Start and Finish give the device can be part of a Recording.
  virtual bool can_be_recorded() const { return false; }
};

// The sizes of the packs in which many tensors are summed. A tensor is never divided: one that is larger is a pack.
struct PackSizes {
  int64_t most_bytes;  // of a pack
  int64_t last_bytes;  // of the last one, for which the devices wait when they have computed everything else
  int num_packs = 0;   // else: so many, of about the same sizes
};

class CommunicatorGroup {
 public:
  virtual ~CommunicatorGroup() = default;

  // The communicator of device `rank`, for use by that device's thread only.
  virtual Communicator& communicator(int rank) = 0;
  // Ends all waits, now and later, with Cancelled, since a device has failed with this error.
  virtual void Abort(const absl::Status& cause) = 0;
  // After Abort, when no device is in a step: forgets what was started. Returns FailedPrecondition if neither the group
  // nor the programs that use it can be used again.
  virtual absl::Status Reset() = 0;
};

}  // namespace official::compute
