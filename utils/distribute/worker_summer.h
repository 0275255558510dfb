// Sums of an InProcessGroup whose devices are some of the replicas of a job with several workers.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "utils/distribute/exchange.h"
#include "utils/distribute/in_process_group.h"
#include "utils/distribute/worker_sum.h"

namespace official::distribute {

// The costs of a worker's sums, those of its first steps left out.
struct SumCosts {
  int64_t steps = 0;
  int64_t bytes_sent = 0;
  double seconds = 0;         // of adding, sending and waiting for other workers, over all packs
  double waited_seconds = 0;  // those of them in which the devices had nothing to do but wait
};

// Sums for devices that all compute in the host's memory. A thread of it adds and sends, as `sum` does, while the
// devices compute; an error of that ends the step.
class WorkerSummer : public PackSummer {
 public:
  // `exchange` must outlive the summer.
  WorkerSummer(std::unique_ptr<WorkerSum> sum, Exchange& exchange);
  ~WorkerSummer() override;

  void Begin(int pack, absl::Span<const std::vector<Buffer>> buffers) override;
  // One thread waits for the whole pack.
  int64_t Share(int64_t left) const override { return left; }
  absl::Status Sum(int pack, absl::Span<const std::vector<Buffer>> buffers, int64_t begin, int64_t end) override;
  void Abort() override { exchange_.Fail(""); }
  absl::Status Reset() override;

  SumCosts Costs() const;
  // Returns how long the thread has waited for what other workers send, from the first step on.
  double SecondsOfWaiting() const;

 private:
  struct Given {
    int pack;
    absl::Span<const std::vector<Buffer>> buffers;  // [local device]
  };
  void Loop();

  const std::unique_ptr<WorkerSum> sum_;
  Exchange& exchange_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Given> given_;      // not yet taken by the thread
  std::vector<char> is_summed_;  // by pack, in this step
  absl::Status status_;          // an error, after which there are no sums any more
  int64_t steps_ = 0;
  SumCosts costs_;
  double seconds_of_waiting_ = 0;
  int waiting_ = 0;                                      // devices that wait for a sum
  std::chrono::steady_clock::time_point waiting_since_;  // when the first of them began
  bool summing_ = false;                                 // the thread works on a pack
  bool ending_ = false;
  std::thread thread_;  // last: starts when all else is there
};

}  // namespace official::distribute
