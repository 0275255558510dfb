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
  // The number that the cluster gives a worker, and its name in messages: "worker 2 at 10.0.0.1:2222". Where a job goes
  // on without some of its workers, the others move up in the exchange, and keep these.
  virtual int NumberOf(int worker) const { return worker; }
  virtual std::string NameOf(int worker) const;
  // Sends a frame, of which the parts follow one another. Returns as soon as they can be changed; the frame may not
  // have arrived. Where very much is on its way to the worker, first waits for that, but never for a Receive of it.
  virtual absl::Status Send(int worker, Channel channel, absl::Span<const absl::string_view> parts) = 0;
  absl::Status Send(int worker, Channel channel, absl::string_view frame) {
    return Send(worker, channel, absl::MakeConstSpan(&frame, 1));
  }
  // Returns the next frame of a worker. DeadlineExceeded names it after `deadline`, Cancelled after Fail() or when any
  // worker is lost. A worker without which the job goes on, as jobs with parameter servers do, ends only the waits for
  // itself: Unavailable, also when its process was started again, until WaitForReturn.
  virtual absl::StatusOr<std::string> Receive(int worker, Channel channel, std::chrono::seconds deadline) = 0;
  // Waits until a worker for which Receive was Unavailable is back, that is, until a new process of it takes part. From
  // then on frames go to that process and come from it, from its first on; what was under way from and to earlier ones
  // is dropped. DeadlineExceeded names the worker; Cancelled as Receive. No other thread may Send to that worker
  // meanwhile.
  virtual absl::Status WaitForReturn(int worker, std::chrono::milliseconds deadline) = 0;
  // Returns 0 if this process was there when the job began, else its number among those of this worker that came later,
  // from 1. Those that have begun do not send it again what they have sent at the beginning.
  virtual int incarnation() const { return 0; }
  // Returns OK, or Cancelled once another worker has failed or is lost, without waiting for a frame.
  virtual absl::Status Check() = 0;
  // Ends all waits, of all workers, now and later, for frames that were not sent before, and those of Send, whose
  // frames are then dropped. Where it is called, it has an error that is told; the others are Cancelled with a text
  // that names this worker and has the reason, if there is one. The first call counts.
  virtual void Fail(absl::string_view reason) = 0;

  // Workers that are lost, by their numbers in the cluster: they went, or were silent for too long, without a word.
  virtual std::vector<int> Lost() { return {}; }
  // Workers, likewise, that came after the job had begun and wait to take part. Only the first worker knows of them.
  virtual std::vector<int> Late() { return {}; }
  // The job is done. Who waits to take part, or comes back, is told so; else it would wait for the job to begin again.
  virtual void Finish() {}
};

// Returns what each worker has given, by worker; every worker gives something. Errors: those of Receive.
absl::StatusOr<std::vector<std::string>> Gather(Exchange& exchange, absl::string_view own,
                                                std::chrono::seconds deadline);

}  // namespace official::distribute
