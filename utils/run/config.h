// Config: the values of the flags that every training program has.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "utils/flags/base.h"
#include "utils/flags/benchmark.h"
#include "utils/flags/cluster.h"
#include "utils/flags/command_line.h"
#include "utils/flags/performance.h"
#include "utils/train/options.h"

namespace official::run {

// What a program does to show what a run would be, instead of running (rehearsal.h).
enum class Rehearsal { kNone, kPrintSchedule, kDryRun, kFindLr };

struct Config {
  flags::BaseConfig base;
  train::TrainOptions train;
  flags::PerformanceConfig performance;
  flags::ClusterConfig cluster;
  flags::BenchmarkConfig benchmark;
  std::string taken_from_training;    // flags that have their value from the training in model_dir
  std::vector<std::string> notes;     // logged for the user when the run begins
  std::vector<std::string> warnings;  // the same for flags that have no effect
  // Name and value of the flags that all workers of a run must have the same.
  std::vector<std::pair<std::string, std::string>> flags_of_all_workers = {};
  std::vector<std::string> input_paths = {};  // that the flags name: --clean must not delete them
  int least_batch_size = 1;                   // the least that the program can train with
  Rehearsal rehearsal = Rehearsal::kNone;
  std::string program = "";        // its name
  std::string commit = "unknown";  // the commit of the program, for the run record
};
Config ConfigFromFlags(const flags::CommandLine& command_line);

// Sends the log to stderr in the format of --log_format, and logs the warnings, the notes and the flags that have their
// value from the training in model_dir. InvalidArgument for a format that does not exist.
absl::Status InitLogging(const Config& config);

}  // namespace official::run
