#include "utils/run/config.h"

#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "utils/compute/core/status.h"
#include "utils/flags/config_flag.h"
#include "utils/flags/default_dirs.h"
#include "utils/flags/environment.h"
#include "utils/logs/console.h"
#include "utils/logs/log.h"
#include "utils/misc/text.h"

namespace official::run {
namespace {

Rehearsal RehearsalOf(const flags::CommandLine& command_line) {
  switch (command_line.request()) {
    case flags::CommandLine::Request::kPrintSchedule:
      return Rehearsal::kPrintSchedule;
    case flags::CommandLine::Request::kDryRun:
      return Rehearsal::kDryRun;
    case flags::CommandLine::Request::kFindLr:
      return Rehearsal::kFindLr;
    default:
      return Rehearsal::kNone;
  }
}

}  // namespace

Config ConfigFromFlags(const flags::CommandLine& command_line) {
  train::TrainOptions train = flags::FromFlags<train::TrainOptions>();
  train.flags_text = command_line.AllFlagsText();
  return {.base = flags::BaseFromFlags(command_line),
          .train = std::move(train),
          .performance = flags::FromFlags<flags::PerformanceConfig>(),
          .cluster = flags::FromFlags<flags::ClusterConfig>(),
          .benchmark = flags::FromFlags<flags::BenchmarkConfig>(),
          .taken_from_training = command_line.taken_from_training(),
          .notes = flags::NotesOnFormerDefaults(command_line),
          .warnings = flags::NotesOnUnusedFlags(command_line),
          .flags_of_all_workers = command_line.FlagsOfAllWorkers(),
          .input_paths = command_line.InputPaths(),
          .rehearsal = RehearsalOf(command_line),
          .program = command_line.program(),
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
  const auto append = [](std::string* out, const flags::EnvironmentVariable& variable) {
    absl::StrAppend(out, variable.name, "=", misc::Printable(variable.value));
  };
  if (const auto variables = flags::VariablesThatChangeRuns(environ); !variables.empty()) {
    LOG(INFO) << "by environment variables: " << absl::StrJoin(variables, ", ", append);
  }
  if (!config.taken_from_training.empty()) {
    LOG(INFO) << "as " << config.train.model_dir << " was trained: " << config.taken_from_training;
  }
  return absl::OkStatus();
}

}  // namespace official::run
