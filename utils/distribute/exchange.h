// Exchange: how the workers of a job, each of which holds some of its replicas, send each other bytes. Every worker
// computes the same steps, so all send and receive in the same order and nothing needs a name.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace official::distribute {

class Exchange {
 public:
  // Frames of one channel arrive in the order in which they were sent, whatever the other carries.
  enum class Channel {
    kSums,    // gradients and statistics, while the devices compute
    kValues,  // what the workers tell each other between their programs
  };
  virtual ~Exchange() = default;

  virtual int worker() const = 0;  // number of this one
  virtual int num_workers() const = 0;
  // Sends a frame, of which the parts follow one another. Returns as soon as they can be changed; the frame may not
  // have arrived.
  virtual absl::Status Send(int worker, Channel channel, absl::Span<const absl::string_view> parts) = 0;
  absl::Status Send(int worker, Channel channel, absl::string_view frame) {
    return Send(worker, channel, absl::MakeConstSpan(&frame, 1));
  }
  // Returns the next frame of a worker. DeadlineExceeded names it after `deadline`, Cancelled after Fail().
  virtual absl::StatusOr<std::string> Receive(int worker, Channel channel, std::chrono::seconds deadline) = 0;
  // Returns OK, or Cancelled once another worker has failed or is lost, without waiting for a frame.
  virtual absl::Status Check() = 0;
  // Ends all waits, of all workers, now and later, for frames that were not sent before. Where it is called, it has an
  // error that is told; the others are Cancelled with a text that names this worker and has the reason, if there is
  // one. The first call counts.
  virtual void Fail(absl::string_view reason) = 0;
};

// Returns what each worker has given, by worker; every worker gives something. Errors: those of Receive.
absl::StatusOr<std::vector<std::string>> Gather(Exchange& exchange, absl::string_view own,
                                                std::chrono::seconds deadline);

}  // namespace official::distribute
