#include "utils/run/config.h"

#include "utils/compute/core/status.h"
#include "utils/flags/default_dirs.h"
#include "utils/logs/console.h"
#include "utils/logs/log.h"

namespace official::run {

Config ConfigFromFlags(const flags::CommandLine& command_line) {
  return {.base = flags::BaseFromFlags(command_line),
          .performance = flags::PerformanceFromFlags(),
          .benchmark = flags::BenchmarkFromFlags(),
          .flags_text = command_line.AllFlagsText(),
          .taken_from_training = command_line.taken_from_training(),
          .notes = flags::NotesOnFormerDefaults(command_line),
          .warnings = flags::NotesOnUnusedFlags(command_line),
          .commit = command_line.commit()};
}

absl::Status InitLogging(const Config& config) {
  RETURN_IF_ERROR(logs::LogToConsole(config.base.log_format));
  for (const std::string& warning : config.warnings) {
    LOG(WARNING) << warning;
  }
  for (const std::string& note : config.notes) {
    LOG(INFO) << note;
  }
  if (!config.taken_from_training.empty()) {
    LOG(INFO) << "as " << config.base.model_dir << " was trained: " << config.taken_from_training;
  }
  return absl::OkStatus();
}

}  // namespace official::run
