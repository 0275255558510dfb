// StepSummaries: the values of training steps that hooks and event files show. Only the chief of several workers has an
// event file; for the others, what writes to it does nothing.
#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "utils/logs/chrome_trace.h"
#include "utils/train/checkpointed_model.h"

namespace official::train {

class StepSummaries {
 public:
  using Clock = std::chrono::steady_clock;
  using Scalars = std::vector<std::pair<std::string, double>>;

  // Knows the values that `program` shows: learning_rate, the model's logged values and its metrics.
  StepSummaries(CheckpointedModel& model, const ReplicatedProgram& program);

  const std::vector<std::string>& names() const { return names_; }
  // Returns the values of the last step of `program`, by name.
  absl::StatusOr<Scalars> Read(const ReplicatedProgram& program, float learning_rate);
  // Counts the time that a step has waited for its data, for the next Write. That of the first step was before the
  // beginning.
  void CountDataWait(Clock::duration wait) {
    if (has_begun_) data_wait_ += wait;
    has_begun_ = true;
  }
  // Writes the loss, the values of the last Read, the speed, the share of the time that steps have waited for data, and
  // the model's images of `batch` to the event file.
  absl::Status Write(const data::Batch& batch, double loss, const Scalars& values, Clock::time_point now);
  // Writes the kernels of a step, by device.
  absl::Status WriteTrace(absl::Span<const logs::DeviceTrace> trace);
  absl::Status Flush();

 private:
  CheckpointedModel& model_;
  std::vector<std::string> names_, tags_;  // of the values; tags are the names in event files
  // The last summary, or the beginning of the train call.
  Clock::time_point last_time_ = Clock::now();
  int64_t last_step_;
  Clock::duration data_wait_{};  // since then
  bool has_begun_ = false;
};

// Returns timings as the trace of a device; the first kernel started at `start_us`, microseconds since 1970.
logs::DeviceTrace TraceOf(const std::vector<compute::KernelTiming>& timings, int64_t start_us,
                          absl::string_view device);

}  // namespace official::train
