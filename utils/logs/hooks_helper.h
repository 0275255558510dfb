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
  std::string model_dir{};                // where ProfilerHook writes
  int64_t batch_size = 0;                 // global
  BaseBenchmarkLogger* logger = nullptr;  // outlives the hooks; needed by ExamplesPerSecondHook and LoggingMetricHook
  std::vector<std::string> tensors_to_log = {"cross_entropy", "learning_rate", "train_accuracy"};
};

// LoggingTensorHook (every 100 steps), ProfilerHook (every 1000), ExamplesPerSecondHook (every 100, after 5 warm steps)
// and LoggingMetricHook (every 600 s), by name: capital or small letters, blanks around it left out. Tensors are logged
// in alphabetical order. InvalidArgument for any other name.
absl::StatusOr<std::vector<std::unique_ptr<Hook>>> GetTrainHooks(absl::Span<const std::string> names,
                                                                 const TrainHookOptions& options);

}  // namespace official::logs
