#include "utils/logs/hooks_helper.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/logs/hooks.h"

namespace official::logs {
namespace {

constexpr char kLoggingTensorHook[] = "loggingtensorhook";

std::string Key(const std::string& name) { return absl::AsciiStrToLower(absl::StripAsciiWhitespace(name)); }

}  // namespace

std::vector<std::string> TensorsInLog(absl::Span<const std::string> names, std::vector<std::string> tensors_to_log) {
  const bool logs_tensors =
      std::any_of(names.begin(), names.end(), [](const std::string& name) { return Key(name) == kLoggingTensorHook; });
  if (!logs_tensors) return {};
  std::sort(tensors_to_log.begin(), tensors_to_log.end());
  return tensors_to_log;
}

absl::StatusOr<std::vector<std::unique_ptr<Hook>>> GetTrainHooks(absl::Span<const std::string> names,
                                                                 const TrainHookOptions& options) {
  std::vector<std::string> tensors = options.tensors_to_log;
  std::sort(tensors.begin(), tensors.end());
  std::vector<std::unique_ptr<Hook>> hooks;
  for (const std::string& name : names) {
    const std::string key = Key(name);
    if (key == kLoggingTensorHook) {
      continue;
    } else if (key == "profilerhook") {
      hooks.push_back(std::make_unique<ProfilerHook>(options.model_dir, /*save_steps=*/1000));
    } else if (key == "examplespersecondhook") {
      ASSIGN_OR_RETURN(hooks.emplace_back(), ExamplesPerSecondHook::Create(options.batch_size, options.logger,
                                                                           {.steps = 100}, /*warm_steps=*/5));
    } else if (key == "loggingmetrichook") {
      ASSIGN_OR_RETURN(hooks.emplace_back(),
                       LoggingMetricHook::Create(tensors, options.logger, {.seconds = Seconds(600)}));
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat("--hooks: unrecognized training hook '", name,
                       "'; the hooks are LoggingTensorHook, ProfilerHook, ExamplesPerSecondHook, LoggingMetricHook."));
    }
  }
  return hooks;
}

}  // namespace official::logs
