// WorkerAgreement: what all workers of a job do between two steps, so that they save and stop after the same one.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "utils/distribute/strategy.h"
#include "utils/logs/hook.h"
#include "utils/train/config.h"
#include "utils/train/straggler.h"

namespace official::train {

class WorkerAgreement {
 public:
  // `interruption` is that of EstimatorConfig. The strategy must outlive this.
  WorkerAgreement(const distribute::Strategy& strategy, std::function<Interruption()> interruption)
      : strategy_(strategy), interruption_(std::move(interruption)) {}

  // The requests that all workers meet between two steps.
  struct Agreed {
    Interruption interruption;  // the strongest that any of them has been asked for
    bool save_is_due;           // as the chief says
    bool late_workers;          // there are some that wait to take part, as the chief knows
  };
  // Returns the requests. All workers call it at the same point. Logs, on the chief, who keeps the others waiting.
  absl::StatusOr<Agreed> Agree(bool save_is_due);
  // Replaces what the hooks of this process want to see of the next step by what those of the chief do.
  absl::Status TakeRequestOfChief(logs::StepRequest& request) const;

  // The workers, by their place in the strategy's exchange, that have asked all to stop.
  const std::vector<int>& stopped_by() const { return stopped_by_; }
  // Returns true if the training was stopped so that a worker that waits can take part.
  bool stopped_for_late_worker() const { return stopped_for_late_worker_; }
  void StopForLateWorker() { stopped_for_late_worker_ = true; }

 private:
  // Returns, with several workers, how long this one has computed since the last agreement, for each of its replicas.
  float SecondsOfWork() const;
  void LogStraggler(const std::vector<std::string>& all);

  const distribute::Strategy& strategy_;
  const std::function<Interruption()> interruption_;
  StragglerWatch straggler_watch_;
  std::optional<StragglerWatch::Clock::time_point> agreed_;  // when the last agreement was reached
  double waited_seconds_ = 0;                                // until then
  std::vector<int> stopped_by_;
  bool stopped_for_late_worker_ = false;
};

}  // namespace official::train
