// The progress of work other than training that may take longer than a second: an evaluation, a download, reading a
// file. On a terminal, a live line once a second has passed:
//   evaluating step 600  45% [=======>         ] 4500/10000 examples, 812.3 examples/s, 0:05, 0:07 left
// Otherwise the log gets a line after 30 s without any; with --log_format=json an event "progress".
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "utils/logs/live_line.h"
#include "utils/logs/ticker.h"

namespace official::logs {

// The longest time that a run leaves the log without a line.
inline constexpr std::chrono::seconds kLongestSilence(30);

// Returns "0:07" for 7.9, "1:01:01" for 3661. `seconds` must not be negative; more than 2^62 count as 2^62.
std::string FormatDuration(double seconds);

// For tests: true draws the live line of a task when it begins and when it ends, too; false, as at first, from a second
// on.
void DrawTasksAtOnce(bool at_once);

struct TaskProgressOptions {
  std::string title;      // the activity, e.g. "evaluating step 600"
  int64_t total = 0;      // 0 if not known
  std::string unit = "";  // unit of the count, e.g. "images"; "B": bytes, shown in MB; empty: nothing is counted
  int64_t done = 0;       // already done at the start, e.g. of a resumed download
  // For tests: a clock, and no thread of its own.
  std::function<std::chrono::steady_clock::time_point()> now = nullptr;
};

class TaskProgress {
 public:
  explicit TaskProgress(TaskProgressOptions options);
  ~TaskProgress();  // removes the live line
  TaskProgress(const TaskProgress&) = delete;
  TaskProgress& operator=(const TaskProgress&) = delete;

  // Counts. Any thread may call it, and it is cheap: it changes an atomic number that the object's own thread reads.
  void Add(int64_t count) { done_.fetch_add(count, std::memory_order_relaxed); }
  void Set(int64_t done) { done_.store(done, std::memory_order_relaxed); }

  // Shows the present state where one is due; called by the object's own thread.
  void Tick();

 private:
  using TimePoint = std::chrono::steady_clock::time_point;
  struct State {
    int64_t done = 0;
    double elapsed = 0, per_second = 0;
    std::optional<double> left = std::nullopt;  // seconds
  };
  State StateAt(TimePoint now) const;
  std::string Count(int64_t number) const;
  std::vector<LinePart> Parts(const State& state) const;
  void DrawLine(const State& state);
  void LogLine(const State& state);

  const TaskProgressOptions options_;
  const TimePoint start_;
  std::atomic<int64_t> done_;
  TimePoint last_line_;  // time of the last log line by this object
  std::string drawn_;    // the live line
  std::unique_ptr<Ticker> ticker_;
};

}  // namespace official::logs
