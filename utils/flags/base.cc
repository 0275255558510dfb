#include "utils/flags/base.h"

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"

ABSL_FLAG(std::string, data_dir, "/tmp", "Directory of the input data.");
ABSL_FLAG(std::string, model_dir, "/tmp",
          "Directory of the run: checkpoints, event files, logs. A run that finds a checkpoint there goes on from it.");
ABSL_FLAG(bool, clean, false, "Delete what an earlier run left in --model_dir and start afresh.");
ABSL_FLAG(
    std::string, resume, "auto",
    "Whether to go on from a checkpoint in --model_dir: auto does if there is one, never refuses to if there is one, "
    "must refuses to start without one.");
ABSL_FLAG(int, train_epochs, 1, "Epochs to train in all, those of earlier runs in --model_dir included.");
ABSL_FLAG(int, epochs_between_evals, 1, "Epochs to train between two evaluations.");
ABSL_FLAG(std::optional<double>, stop_threshold, std::nullopt,
          "Stop training when an evaluation's metric is at or above this value.");
ABSL_FLAG(int, batch_size, 32,
          "Examples per step in training and evaluation, over all GPUs together: 32 on 4 GPUs is 8 on each.");
ABSL_FLAG(std::optional<int>, num_gpus, std::nullopt, "GPUs to train on; 0 is the CPU, -1 all GPUs of the machine.");
ABSL_FLAG(std::vector<std::string>, hooks, {"LoggingTensorHook"},
          "Hooks to run in training; upper and lower case are alike.");
ABSL_FLAG(std::optional<std::string>, export_dir, std::nullopt, "Write a SavedModel there after training.");

ABSL_FLAG(bool, eval_only, false, "Evaluate once what was trained in --model_dir, in place of training.");

ABSL_FLAG(uint64_t, seed, 1, "Seed of initial weights, shuffling, augmentation and dropout.");
ABSL_FLAG(bool, shuffle, true, "Shuffle the training examples, differently in each epoch.");
ABSL_FLAG(bool, augment, true, "Distort training examples at random, where the model does so.");
ABSL_FLAG(std::optional<int64_t>, save_checkpoints_steps, std::nullopt,
          "Steps between two checkpoints, in place of --save_checkpoints_secs.");
ABSL_FLAG(int, save_checkpoints_secs, 600, "Seconds between two checkpoints.");
ABSL_FLAG(int, keep_checkpoint_max, 5, "How many of the latest checkpoints to keep; 0 keeps all.");
ABSL_FLAG(int, log_every_n_steps, 100, "Steps between two lines of the log and two entries of metric.log.");
ABSL_FLAG(std::string, log_format, "auto",
          "Progress on standard error: a live bar, simple lines, JSON lines or none; auto is a bar on a terminal, else "
          "simple lines.");
ABSL_FLAG(std::string, output, "text", "Form of the results on standard output.");

namespace official::flags {
namespace {

absl::Status OneSaveInterval(const CommandLine& command_line) {
  if (!command_line.given("save_checkpoints_steps") || !command_line.given("save_checkpoints_secs") ||
      !absl::GetFlag(FLAGS_save_checkpoints_steps).has_value()) {
    return absl::OkStatus();
  }
  return FlagError("save_checkpoints_steps", "cannot be combined with --save_checkpoints_secs; give one of them");
}

absl::Status NothingToEvaluate(const CommandLine&) {
  if (!absl::GetFlag(FLAGS_eval_only) || !absl::GetFlag(FLAGS_clean)) return absl::OkStatus();
  return FlagError("eval_only", "cannot be combined with --clean, which deletes what is to be evaluated");
}

}  // namespace

FlagGroup BaseFlags() {
  return {
      .name = "base",
      .flags =
          {
              {.name = "data_dir", .short_name = "dd", .key = true, .required = true},
              {.name = "model_dir", .short_name = "md", .key = true, .required = true},
              {.name = "clean", .key = true},
              {.name = "resume", .choices = {"auto", "never", "must"}},
              {.name = "train_epochs", .short_name = "te", .key = true, .range = AtLeast(0)},
              {.name = "epochs_between_evals", .short_name = "ebe", .key = true, .range = AtLeast(1)},
              {.name = "stop_threshold", .short_name = "st"},
              {.name = "batch_size", .short_name = "bs", .key = true, .range = AtLeast(1)},
              {.name = "num_gpus",
               .short_name = "ng",
               .key = true,
               .range = AtLeast(-1),
               .unset_means = "1 if there is a GPU, else 0"},
              {.name = "hooks",
               .short_name = "hk",
               .key = true,
               .choices = {"LoggingTensorHook", "ProfilerHook", "ExamplesPerSecondHook", "LoggingMetricHook"},
               .any_case = true},
              {.name = "export_dir", .short_name = "ed", .key = true},
              {.name = "eval_only", .key = true},
              {.name = "seed", .range = AtLeast(0)},
              {.name = "shuffle"},
              {.name = "augment"},
              {.name = "save_checkpoints_steps", .range = AtLeast(1)},
              {.name = "save_checkpoints_secs", .range = AtLeast(1)},
              {.name = "keep_checkpoint_max", .range = AtLeast(0)},
              {.name = "log_every_n_steps", .range = AtLeast(1)},
              {.name = "log_format", .choices = {"auto", "bar", "simple", "json", "none"}},
              {.name = "output", .choices = {"text", "json"}},
          },
      .validators = {OneSaveInterval, NothingToEvaluate},
  };
}

absl::Status PredictAlone(const CommandLine& command_line) {
  if (!command_line.given("predict")) return absl::OkStatus();
  const bool eval_only = absl::GetFlag(FLAGS_eval_only);
  if (!eval_only && !absl::GetFlag(FLAGS_export_dir)) return absl::OkStatus();
  return FlagError("predict", absl::StrCat("cannot be combined with --", eval_only ? "eval_only" : "export_dir",
                                           "; run the program once for each"));
}

BaseConfig BaseFromFlags(const CommandLine& command_line) {
  return {
      .data_dir = absl::GetFlag(FLAGS_data_dir),
      .data_dir_given = command_line.given("data_dir"),
      .model_dir = absl::GetFlag(FLAGS_model_dir),
      .model_dir_given = command_line.given("model_dir"),
      .clean = absl::GetFlag(FLAGS_clean),
      .resume = absl::GetFlag(FLAGS_resume),
      .train_epochs = absl::GetFlag(FLAGS_train_epochs),
      .epochs_between_evals = absl::GetFlag(FLAGS_epochs_between_evals),
      .stop_threshold = absl::GetFlag(FLAGS_stop_threshold),
      .batch_size = absl::GetFlag(FLAGS_batch_size),
      .num_gpus = absl::GetFlag(FLAGS_num_gpus),
      .hooks = absl::GetFlag(FLAGS_hooks),
      .export_dir = absl::GetFlag(FLAGS_export_dir),
      .eval_only = absl::GetFlag(FLAGS_eval_only),
      .seed = absl::GetFlag(FLAGS_seed),
      .shuffle = absl::GetFlag(FLAGS_shuffle),
      .augment = absl::GetFlag(FLAGS_augment),
      .save_checkpoints_steps = absl::GetFlag(FLAGS_save_checkpoints_steps),
      .save_checkpoints_secs = absl::GetFlag(FLAGS_save_checkpoints_secs),
      .keep_checkpoint_max = absl::GetFlag(FLAGS_keep_checkpoint_max),
      .log_every_n_steps = absl::GetFlag(FLAGS_log_every_n_steps),
      .log_format = absl::GetFlag(FLAGS_log_format),
      .output = absl::GetFlag(FLAGS_output),
  };
}

}  // namespace official::flags
