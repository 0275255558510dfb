// The flags of every run: data, model_dir, length, batch, devices, hooks; and, beyond upstream, seed, checkpoints and
// logs. Those that concern the training itself are in train::TrainOptions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "utils/flags/command_line.h"
#include "utils/train/evaluations/metric_rule.h"

namespace official::flags {

enum class ExportFormat { kSavedModel, kOnnx, kBoth };

struct BaseConfig {
  std::string data_dir = "/tmp";
  bool data_dir_given = false;   // true if the user chose it; false: the program's default
  bool model_dir_given = false;  // the same for TrainOptions::model_dir
  bool seed_given = false;       // and for TrainOptions::seed
  bool has_model_dir = true;     // the program has the flag --model_dir
  bool clean = false;
  int train_epochs = 1;  // the total of all runs in model_dir
  int epochs_between_evals = 1;
  std::optional<double> stop_threshold;
  std::optional<train::MetricRule> keep_best, early_stop;
  int batch_size = 32;          // global: over all devices; 0, of "auto", until run::ChooseBatchSize has chosen it
  std::optional<int> num_gpus;  // see misc::GetNumGpus
  std::vector<std::string> hooks = {"LoggingTensorHook"};  // in TensorFlow's spelling
  std::optional<std::string> export_dir;
  ExportFormat export_format = ExportFormat::kSavedModel;
  bool save_meta_graph = false;        // true: checkpoints have TensorFlow's graph of the predictions with them
  bool eval_only = false;              // true: only evaluate what was trained, once
  std::optional<int> overfit_batches;  // train and evaluate on the first so many batches only
  bool shuffle = true;
  bool augment = true;
  std::string log_format = "auto";  // auto, bar, simple, json, none
  std::string output = "text";      // text, json
};

// Returns a validator: the value of --`flag`, if it has one, must be possible for `metric`, which is from 0 to `max`.
Validator ThresholdOf(absl::string_view flag, absl::string_view metric, double max);

FlagGroup BaseFlags();
// A validator for programs with --predict: prediction, evaluation and export must be separate runs.
absl::Status PredictAlone(const CommandLine& command_line);
// Returns FromFlags<BaseConfig>() with the fields that say what the user chose, and without what the program exports
// if it does not use the flags for that.
BaseConfig BaseFromFlags(const CommandLine& command_line);

}  // namespace official::flags
