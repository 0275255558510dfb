// The flags of every run: data, model_dir, length, batch, devices, hooks; and, beyond upstream, seed, checkpoints and
// logs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "utils/flags/command_line.h"

namespace official::flags {

struct BaseConfig {
  std::string data_dir;
  bool data_dir_given = false;  // true if the user chose it; false: the program's default
  std::string model_dir;
  bool model_dir_given = false;
  bool clean = false;
  std::string resume;    // auto, never, must
  int train_epochs = 0;  // the total of all runs in model_dir
  int epochs_between_evals = 0;
  std::optional<double> stop_threshold;
  int batch_size = 0;              // global: over all devices
  std::optional<int> num_gpus;     // see misc::GetNumGpus
  std::vector<std::string> hooks;  // in TensorFlow's spelling, e.g. "LoggingTensorHook"
  std::optional<std::string> export_dir;
  bool eval_only = false;  // true: only evaluate what was trained, once

  uint64_t seed = 0;
  bool shuffle = false;
  bool augment = false;
  std::optional<int64_t> save_checkpoints_steps;  // if set, save_checkpoints_secs does not count
  int save_checkpoints_secs = 0;
  int keep_checkpoint_max = 0;  // 0 keeps all
  int log_every_n_steps = 0;
  std::string log_format;  // auto, bar, simple, json, none
  std::string output;      // text, json
};

// Returns a validator: the value of --`flag`, if it has one, must be possible for `metric`, which is from 0 to `max`.
Validator ThresholdOf(absl::string_view flag, absl::string_view metric, double max);

FlagGroup BaseFlags();
// A validator for programs with --predict: prediction, evaluation and export must be separate runs.
absl::Status PredictAlone(const CommandLine& command_line);
BaseConfig BaseFromFlags(const CommandLine& command_line);

}  // namespace official::flags
