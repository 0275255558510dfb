// PeerStreams: how devices with memory of their own exchange data, on streams beside those on which they compute. The
// calls give the streams work and return at once; each stream does its own in order.
#pragma once

#include <cstdint>

#include "absl/status/status.h"

namespace official::compute {

// One stream per device of a group, numbered by rank. For one thread at a time.
class PeerStreams {
 public:
  virtual ~PeerStreams() = default;

  // Remembers, as mark number `mark` of the device, the place that its computing has come to.
  virtual absl::Status Mark(int rank, int mark) = 0;
  // The stream goes on once its device's computing has come to the mark.
  virtual absl::Status WaitForMark(int rank, int mark) = 0;
  // The stream goes on once stream `other` has done what it was given so far.
  virtual absl::Status WaitForPeer(int rank, int other) = 0;
  // `elements` floats from one device's memory to another's or within one, on the stream of `rank`, which `to` is of.
  virtual absl::Status Copy(int rank, float* to, int from_rank, const float* from, int64_t elements) = 0;
  // to[i] += from[i], both in the device's memory.
  virtual absl::Status Add(int rank, float* to, const float* from, int64_t elements) = 0;
  // The device computes on once all streams have done what they were given so far. Called on its thread, for which it
  // makes the device current.
  virtual absl::Status Join(int rank) = 0;
};

}  // namespace official::compute
