#include "utils/flags/base.h"

#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

ABSL_FLAG(std::string, data_dir, "/tmp", "Directory of the input data.");
ABSL_FLAG(std::string, model_dir, "/tmp",
          "Directory for checkpoints, event files and logs. Training resumes from the latest checkpoint in it.");
ABSL_FLAG(bool, clean, false, "Delete the contents of --model_dir before training starts.");
ABSL_FLAG(std::string, resume, "auto",
          "auto: resume from the latest checkpoint in --model_dir, or start from step 0 if there is none. never: exit "
          "with an error if there is a checkpoint. must: exit with an error if there is none.");
ABSL_FLAG(int, train_epochs, 1, "Epochs to train in total, including those of earlier runs in --model_dir.");
ABSL_FLAG(int, epochs_between_evals, 1, "Epochs of training between two evaluations.");
ABSL_FLAG(std::optional<double>, stop_threshold, std::nullopt,
          "Stop training when an evaluation's metric is at least this value.");
ABSL_FLAG(int, batch_size, 32,
          "Examples per step, in training and evaluation. The batch is divided among all GPUs: with 4 GPUs, 32 is 8 on "
          "each.");
ABSL_FLAG(std::optional<int>, num_gpus, std::nullopt,
          "Number of GPUs to train on: 0 trains on the CPU, -1 on all GPUs of this machine.");
ABSL_FLAG(std::vector<std::string>, hooks, {"LoggingTensorHook"},
          "Training hooks. LoggingTensorHook adds learning rate, cross entropy and accuracy to the lines of the log; "
          "ProfilerHook writes a Chrome trace of a step (timeline-N.json) every 1000 steps; ExamplesPerSecondHook "
          "writes the throughput to metric.log every 100 steps, LoggingMetricHook the loss every 10 minutes. Case is "
          "ignored; --hooks= runs none.");
ABSL_FLAG(std::optional<std::string>, export_dir, std::nullopt,
          "After training, or after the evaluation of --eval_only, write a SavedModel to a new subdirectory of this "
          "directory.");

ABSL_FLAG(bool, eval_only, false, "Evaluate the latest checkpoint in --model_dir once, instead of training.");

ABSL_FLAG(uint64_t, seed, 1,
          "Seed of the initial weights, shuffling, augmentation and dropout. A resumed run keeps its first seed.");
ABSL_FLAG(bool, shuffle, true, "Shuffle the training examples, in a different order in each epoch.");
ABSL_FLAG(bool, augment, true, "Augment training images at random, for example by crops and flips.");
ABSL_FLAG(std::optional<int64_t>, save_checkpoints_steps, std::nullopt,
          "Save a checkpoint every so many steps, instead of every --save_checkpoints_secs seconds.");
ABSL_FLAG(int, save_checkpoints_secs, 600, "Save a checkpoint every so many seconds.");
ABSL_FLAG(int, keep_checkpoint_max, 5,
          "Number of checkpoints to keep in --model_dir: older ones are deleted. 0 keeps all.");
ABSL_FLAG(int, log_every_n_steps, 100,
          "Steps between two lines of progress in the log, and between two entries of metric.log and of the event "
          "file.");
ABSL_FLAG(std::string, log_format, "auto",
          "Format of the log on standard error. bar: lines, and a live progress bar below them; simple: lines; json: "
          "one JSON object per line; none: warnings and errors only; auto: bar on a terminal, otherwise simple.");
ABSL_FLAG(std::string, output, "text",
          "Format of the results on standard output: text, or one JSON object per line for programs.");

namespace official::flags {
namespace {

absl::Status OneSaveInterval(const CommandLine& command_line) {
  if (!command_line.given("save_checkpoints_steps") || !command_line.given("save_checkpoints_secs") ||
      !absl::GetFlag(FLAGS_save_checkpoints_steps).has_value()) {
    return absl::OkStatus();
  }
  return FlagError("save_checkpoints_steps", "cannot be combined with --save_checkpoints_secs; use one of them");
}

absl::Status NothingToEvaluate(const CommandLine&) {
  if (!absl::GetFlag(FLAGS_eval_only) || !absl::GetFlag(FLAGS_clean)) return absl::OkStatus();
  return FlagError("eval_only", "cannot be combined with --clean, which deletes what is to be evaluated");
}

}  // namespace

Validator ThresholdOf(absl::string_view flag, absl::string_view metric, double max) {
  return [=](const CommandLine&) {
    double value = 0;
    if (!absl::SimpleAtod(absl::FindCommandLineFlag(flag)->CurrentValue(), &value)) return absl::OkStatus();
    if (value >= 0 && value <= max) return absl::OkStatus();
    return FlagError(flag, absl::StrCat("needs a number from 0 to ", max, ", the range of the ", metric,
                                        max == 1 ? " (90 % is 0.9)" : ""));
  };
}

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
