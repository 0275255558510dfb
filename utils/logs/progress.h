// The progress of a training: a live line on a terminal, else a line (or JSON object) every few steps.
//   epoch 1/5, step 200/3000, loss 0.3213, 2066.3 examples/s (after 5 warm-up steps), ETA 2:16, data-wait 0.2%
#pragma once

#include "utils/logs/hook.h"
#include "utils/logs/json.h"
#include "utils/logs/output_style.h"

namespace official::logs {

struct ProgressOptions {
  LogFormat format = LogFormat::kSimple;  // kBar: a live line; else lines, in the form that the log was set to
  int64_t total_steps = 0;                // the global step that training ends at; 0 if not known
  int64_t total_epochs = 0;               // 0 if not known
  int64_t log_every_n_steps = 100;        // a line at every multiple of it, and at the end of a train call. At least 1.
  int64_t warmup_steps = 5;               // steps of this process left out of the throughput
};

// Throughput is examples / wall time over all steps after the warm-up, checkpoints and waits for data among them, but
// not what lies between two train calls. ETA and data-wait (its share of the wall time) are over the same steps.
class Progress : public Hook {
 public:
  explicit Progress(const ProgressOptions& options) : options_(options) {}
  ~Progress() override;  // removes the live line

  absl::Status Begin(const TrainStart& start) override;
  // Asks for the loss of the steps that it shows: the live line is drawn at most ten times a second.
  StepRequest BeforeStep(int64_t next_step, TimePoint now) override;
  absl::Status AfterStep(const StepInfo& step) override;
  absl::Status End(const StepInfo& last) override;

  // Examples per second; nothing if all steps so far were warm-up.
  std::optional<double> ExamplesPerSecond() const;

  // "2066.3 examples/s (after 5 warm-up steps)", or why there is no such number.
  std::string Summary() const;

 private:
  std::string Line(const StepInfo& step, bool with_warmup) const;
  Json::Object Fields(const StepInfo& step) const;
  std::optional<double> EtaSeconds(const StepInfo& step) const;
  void LogLine(const StepInfo& step);

  const ProgressOptions options_;
  int64_t steps_ = 0;  // of this process
  // Sums over the steps after the warm-up.
  int64_t measured_examples_ = 0;
  Seconds measured_time_{0};
  Seconds measured_wait_{0};

  TimePoint last_time_;       // end of the step before, or start of the train call
  TimePoint next_draw_;       // kBar
  Seconds step_time_{0};      // of the step before
  bool show_next_ = false;    // whether the coming step will be shown
  int64_t logged_step_ = -1;  // the last one that has a line of its own
};

}  // namespace official::logs
