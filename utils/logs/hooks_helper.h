// The hooks that --hooks names.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "utils/logs/benchmark_logger.h"
#include "utils/logs/hook.h"

namespace official::logs {

struct TrainHookOptions {
  std::string model_dir{};                // directory that ProfilerHook writes to
  int64_t batch_size = 0;                 // global
  BaseBenchmarkLogger* logger = nullptr;  // outlives the hooks; needed by ExamplesPerSecondHook and LoggingMetricHook
  std::vector<std::string> tensors_to_log = {"cross_entropy", "learning_rate", "train_accuracy"};
};

// Returns the tensors for the lines of the log, in alphabetical order: all if LoggingTensorHook is among the names,
// else none. TensorFlow's hook of that name logs its own lines in addition to those with the loss.
std::vector<std::string> TensorsInLog(absl::Span<const std::string> names, std::vector<std::string> tensors_to_log);

// Makes the hooks by name, in any case and ignoring blanks around the name: ProfilerHook (every 1000 steps),
// ExamplesPerSecondHook (every 100, after 5 warm steps) and LoggingMetricHook (every 600 s). LoggingTensorHook makes no
// hook (see above). Tensors are logged in alphabetical order. InvalidArgument for any other name.
absl::StatusOr<std::vector<std::unique_ptr<Hook>>> GetTrainHooks(absl::Span<const std::string> names,
                                                                 const TrainHookOptions& options);

}  // namespace official::logs
