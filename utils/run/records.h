// What the chief records of a training besides its checkpoints: hooks, the benchmark log and the progress.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "utils/logs/benchmark_logger.h"
#include "utils/logs/hook.h"
#include "utils/logs/json.h"
#include "utils/logs/progress.h"
#include "utils/run/config.h"
#include "utils/run/devices.h"
#include "utils/run/input.h"
#include "utils/run/session.h"
#include "utils/train/config.h"
#include "utils/train/rounds.h"
#include "utils/train/run_state.h"

namespace official::run {

class Records {
 public:
  // Adds a hook to those of the flags; before Open.
  void AddHook(std::unique_ptr<logs::Hook> hook) { hooks_.push_back(std::move(hook)); }

  // Tells the program's hooks that the training begins. Errors: those of the hooks and of the benchmark log.
  absl::Status Open(const Config& config, const Input& input, uint64_t seed, bool resumes);
  // Adds the hooks of the flags, and writes what the run is to the benchmark log.
  absl::Status Begin(const Config& config, const SessionOptions& options, const Input& input, const Devices& devices,
                     const train::Schedule& schedule, const train::EpochSize& epoch, const train::RunState& state);

  // Before Begin, and of others than the chief, only those that were added.
  absl::Span<const std::unique_ptr<logs::Hook>> hooks() const { return hooks_; }
  // Null before Begin.
  const logs::Progress* progress() const { return progress_; }

  absl::Status LogEvaluation(const train::EvalResults& results, int64_t global_step);
  // Records how the run ended; nothing if Open did not come to its end. `success` is what upstream calls so: without a
  // failure, and past --stop_threshold if there is one.
  absl::Status Finish(const absl::Status& status, bool success, int64_t global_step);

 private:
  std::unique_ptr<logs::BaseBenchmarkLogger> logger_;
  std::vector<std::unique_ptr<logs::Hook>> hooks_;
  const logs::Progress* progress_ = nullptr;  // one of the hooks
};

}  // namespace official::run
