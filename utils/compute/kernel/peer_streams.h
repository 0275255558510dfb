// PeerStreams: how devices with memory of their own exchange data, on streams separate from those on which they
// compute. The calls give the streams work and return at once; each stream does its work in order.
#pragma once

#include <cstdint>

#include "absl/status/status.h"

namespace official::compute {

// One stream per device of a group, numbered by rank. Only one thread may use it at a time.
class PeerStreams {
 public:
  virtual ~PeerStreams() = default;

  // Remembers, as mark number `mark` of the device, the point that its computing has reached.
  virtual absl::Status Mark(int rank, int mark) = 0;
  // Makes the stream wait until its device's computing has reached the mark.
  virtual absl::Status WaitForMark(int rank, int mark) = 0;
  // Makes the stream wait until stream `other` has done what it was given so far.
  virtual absl::Status WaitForPeer(int rank, int other) = 0;
  // Copies `elements` floats from one device's memory to another's, or within one, on the stream of `rank`, the device
  // of `to`.
  virtual absl::Status Copy(int rank, float* to, int from_rank, const float* from, int64_t elements) = 0;
  // Adds to[i] += from[i], both in the device's memory.
  virtual absl::Status Add(int rank, float* to, const float* from, int64_t elements) = 0;
  // Makes the device's computing wait until all streams have done what they were given so far. It is called on the
  // device's thread, for which it makes the device current.
  virtual absl::Status Join(int rank) = 0;
};

}  // namespace official::compute
