// The progress of a training: a live line on a terminal, else a line (or JSON object) every few steps.
//   loss = 0.3213, step = 200 (0.974 sec), learning_rate = 0.1, 6% of 3000 steps, epoch 1/5, ETA 2:16
// A line begins as TensorFlow's Estimator writes it, with the seconds since the line before it in the same train call.
// A train call ends with "Loss for final step: 0.2105.".
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "utils/logs/hook.h"
#include "utils/logs/json.h"
#include "utils/logs/live_line.h"
#include "utils/logs/output_style.h"
#include "utils/logs/ticker.h"

namespace official::logs {

struct ProgressOptions {
  LogFormat format = LogFormat::kSimple;  // kBar: a live line; else lines, in the form that the log was set to
  int64_t total_steps = 0;                // the global step that training ends at; 0 if not known
  int64_t total_epochs = 0;               // 0 if not known
  int64_t log_every_n_steps = 100;        // a line at every multiple of it, and at the end of a train call; at least 1
  int64_t warmup_steps = 5;               // steps of this process left out of the throughput
  // The tensors that a line shows after the loss, in this order (LoggingTensorHook). If there are any, a terminal also
  // gets the lines, above the live one.
  std::vector<std::string> tensors = {};
  // For tests: a clock, and no thread of its own.
  std::function<TimePoint()> now = nullptr;
};

// A number is in one line only: that of the last step follows its "Loss for final step", unless the step had a line
// before the call was known to end with it. Throughput is examples / wall time over all steps after the warm-up,
// including checkpoints and waits for data, but not the time between two train calls. ETA and data-wait (its share of
// the wall time) are over the same steps. The first step of the process has a line, too. A step that takes longer than
// a second shows its time in the live line; in the other formats the log has a line after 30 s (kLongestSilence) at the
// latest.
class Progress : public Hook {
 public:
  explicit Progress(const ProgressOptions& options) : options_(options) {}
  ~Progress() override;  // removes the live line

  absl::Status Begin(const TrainStart& start) override;  // InvalidArgument if a tensor is missing
  // Asks for the loss of the steps that it shows: the live line is drawn at most ten times a second.
  StepRequest BeforeStep(int64_t next_step, TimePoint now) override;
  absl::Status AfterStep(const StepInfo& step) override;
  absl::Status End(const StepInfo& last) override;

  // Shows how long the present step takes, if that is long; called by the object's own thread during a train call.
  void Tick();

  // Returns the examples per second; nothing if all steps so far were warm-up.
  std::optional<double> ExamplesPerSecond() const;

  // Returns "2066.3 examples/s (after 5 warm-up steps)", or the reason why there is no such number.
  std::string Summary() const;
  // Returns the same as fields: steps (of this process), warmup_steps, examples_per_sec.
  Json::Object SummaryFields() const;

 private:
  // The values of a step that are shown.
  struct Shown {
    int64_t global_step = 0, epoch = 0;
    std::optional<double> loss{};
    std::vector<std::pair<std::string, double>> tensors{};
  };

  Shown ToShow(const StepInfo& step) const;
  // Returns all of the line that follows the loss and the step.
  std::string Details(const Shown& step) const;
  Json::Object Fields(const Shown& step) const;
  std::vector<LinePart> LiveParts(TimePoint now) const;
  std::optional<double> EtaSeconds(int64_t global_step) const;
  void LogLine(const Shown& step, const std::string& text);
  TimePoint LastLine() const;  // time of the log's last line, whoever wrote it

  const ProgressOptions options_;
  mutable std::mutex mutex_;  // guards all below against Tick()
  int64_t steps_ = 0;         // of this process
  // Sums over the steps after the warm-up.
  int64_t measured_examples_ = 0;
  Seconds measured_time_{0};
  Seconds measured_wait_{0};

  TimePoint last_time_;                 // end of the step before, or start of the train call
  TimePoint next_draw_;                 // kBar
  TimePoint last_line_;                 // time of the last log line by this object
  std::optional<TimePoint> last_loss_;  // time of the last line with a loss in this train call
  Seconds step_time_{0};                // duration of the step before
  bool draws_next_ = false;             // true if the next step will be shown in the live line
  bool logs_next_ = false;              // true if it will have a line of the log
  std::optional<int64_t> logged_step_;  // the last one that has its own line
  int64_t regular_step_ = 0;            // the same, but for End, or the step before the round
  Shown last_;                          // the step that the live line shows
  std::unique_ptr<Ticker> ticker_;      // during a train call
};

}  // namespace official::logs
