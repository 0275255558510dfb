// Hooks, which a training loop calls around its steps. The loop owns them, asks each before a step what it wants to see
// of the step, and fetches only that: a step that no hook asks about copies nothing back from the device.
//
//   hook.BeginRun(...)                            // once
//     hook.BeginRound(...)                        // several times: training, then an evaluation
//       hook.Begin(...)                           // before the first step of the round
//         hook.BeforeStep(...), step, hook.AfterStep(...)
//       hook.End(...)                             // after the last
//     hook.EndRound(...)
//     hook.BeginEvaluation(...), evaluation, hook.EndEvaluation(...)
//   hook.EndRun(...)
//
// After an error only EndRun is called.
// All calls come from the training thread, with times that never go back.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "utils/logs/chrome_trace.h"

namespace official::logs {

using TimePoint = std::chrono::steady_clock::time_point;
using Seconds = std::chrono::duration<double>;

struct TrainStart {
  int64_t global_step = 0;                       // updates done so far
  absl::Span<const std::string> tensor_names{};  // names that StepInfo::tensors can have
  TimePoint time{};
};

// The values that a hook wants to see of the next step.
struct StepRequest {
  bool loss = false;
  bool tensors = false;
  bool trace = false;        // its ops are timed
  bool event_trace = false;  // with `trace`: the event file gets the times
};

struct StepInfo {
  int64_t global_step = 0;  // updates done, including this step's
  int64_t epoch = 0;        // epoch of this step's batch; the first is 1
  int64_t examples = 0;     // number of examples in this step's global batch
  Seconds data_wait{0};     // time that the step waited for its batch
  TimePoint time{};         // when the step was done
  // The rest is set if any hook asked for it.
  std::optional<double> loss{};                                // total loss of this step's batch, before its update
  absl::Span<const std::pair<std::string, double>> tensors{};  // float32, widened; e.g. cross_entropy, learning_rate
  absl::Span<const DeviceTrace> trace{};
};

struct RunStart {
  bool resumed = false;
  uint64_t seed = 1;
  int64_t batch_size = 0;  // global
  int grad_accum_steps = 1;
  int64_t num_train_examples = 0;
};

// The epochs of a train call; the first epoch of all is 1.
struct RoundInfo {
  int64_t first_epoch = 1, num_epochs = 1;
};

class Hook {
 public:
  virtual ~Hook() = default;

  virtual absl::Status BeginRun(const RunStart& start) { return absl::OkStatus(); }
  virtual absl::Status BeginRound(const RoundInfo& round) { return absl::OkStatus(); }
  virtual absl::Status EndRound(const RoundInfo& round) { return absl::OkStatus(); }
  // `epoch` is the number of the last epoch trained.
  virtual absl::Status BeginEvaluation(int64_t epoch) { return absl::OkStatus(); }
  virtual absl::Status EndEvaluation(int64_t epoch, absl::Span<const std::pair<std::string, double>> results) {
    return absl::OkStatus();
  }
  // `success`: the run ended without an error, past its stop threshold if it has one.
  virtual absl::Status EndRun(bool success) { return absl::OkStatus(); }

  // Returns InvalidArgument if the hook needs a tensor that this model does not have.
  virtual absl::Status Begin(const TrainStart& start) { return absl::OkStatus(); }
  // Returns the values that the hook wants of the next step; `next_step` is the global step after its update.
  virtual StepRequest BeforeStep(int64_t next_step, TimePoint now) { return {}; }
  // An error (such as of a file that cannot be written) ends the training.
  virtual absl::Status AfterStep(const StepInfo& step) { return absl::OkStatus(); }
  // `last` is the StepInfo of the last AfterStep, with its loss if that can still be had; in a train call without steps
  // only its global_step and time are set.
  virtual absl::Status End(const StepInfo& last) { return absl::OkStatus(); }
};

}  // namespace official::logs
