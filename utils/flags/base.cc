#include "utils/flags/base.h"

#include "absl/flags/reflection.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "utils/flags/config_flag.h"
#include "utils/train/options.h"

OFFICIAL_FLAG_GROUP(base);

namespace official::flags {
namespace {

constexpr Choice<train::Resume> kResumes[] = {
    {"auto", train::Resume::kAuto}, {"never", train::Resume::kNever}, {"must", train::Resume::kMust}};
constexpr Choice<ExportFormat> kExportFormats[] = {
    {"saved_model", ExportFormat::kSavedModel}, {"onnx", ExportFormat::kOnnx}, {"both", ExportFormat::kBoth}};

}  // namespace
}  // namespace official::flags

OFFICIAL_FLAG(BaseConfig, data_dir, "Directory of the input data.", .short_name = "dd", .key = true, .required = true,
              .other_names = {{"data dataset_dir data_path dataset_path data_root train_data train_dir_data "
                               "input_dir root"}},
              .per_worker = true, .input = true);

OFFICIAL_FLAG(train::TrainOptions, model_dir,
              "Directory for checkpoints, event files and logs. Training resumes from the latest checkpoint in it.",
              .short_name = "md", .key = true, .required = true,
              .other_names = {{"checkpoint_dir checkpoint_path ckpt ckpt_dir ckpt_path checkpoints_dir save_dir "
                               "save_path output_dir out_dir log_dir logdir job_dir train_dir work_dir workdir "
                               "model_path run_dir checkpoint"}},
              .per_worker = true);

OFFICIAL_FLAG(BaseConfig, clean, "Delete the contents of --model_dir before training starts.", .key = true,
              .other_names = {{"overwrite force restart fresh delete reset"}}, .per_worker = true);

OFFICIAL_CHOICE_FLAG(
    train::TrainOptions, resume, kResumes,
    "auto: resume from the latest checkpoint in --model_dir, or start from step 0 if there is none. never: exit "
    "with an error if there is a checkpoint. must: exit with an error if there is none.",
    .other_names = {{"resume_from restore resume_training continue", " (a run resumes the checkpoint in --model_dir)"}},
    .per_worker = true);

OFFICIAL_FLAG(BaseConfig, train_epochs, "Epochs to train in total, including those of earlier runs in --model_dir.",
              .short_name = "te", .key = true, .range = AtLeast(0),
              .other_names = {{"epochs epoch num_epochs n_epochs max_epochs nb_epochs num_train_epochs "
                               "training_epochs"}});

OFFICIAL_FLAG(BaseConfig, epochs_between_evals, "Epochs of training between two evaluations.", .short_name = "ebe",
              .key = true, .range = AtLeast(1),
              .other_names = {{"eval_every eval_interval eval_freq epochs_per_eval epochs_between_eval "
                               "eval_frequency"}});

OFFICIAL_FLAG(BaseConfig, stop_threshold, "Stop training when an evaluation's metric is at least this value.",
              .short_name = "st", .other_names = {{"target target_accuracy target_metric"}});

namespace official::flags {
namespace {

std::optional<train::MetricRule> KeepBestOf(const std::optional<std::string>& text) {
  return text ? train::ParseMetricRule(*text, /*otherwise=*/1) : std::nullopt;
}

std::optional<train::MetricRule> EarlyStopOf(const std::optional<std::string>& text) {
  return text ? train::ParseMetricRule(*text, /*otherwise=*/std::nullopt) : std::nullopt;
}

}  // namespace
}  // namespace official::flags

OFFICIAL_CONVERTED_FLAG(
    BaseConfig, keep_best, std::optional<std::string>, std::nullopt, KeepBestOf,
    "Keep the N checkpoints with the best evaluations in --model_dir/best, whatever --keep_checkpoint_max deletes: "
    "METRIC:max:N or METRIC:min:N, where METRIC is the name of a result of the evaluation and max means that more is "
    "better. Without :N one is kept.",
    .other_names = {{"save_best save_best_only keep_best_checkpoints keep_best_checkpoint monitor "
                     "best_checkpoint_metric metric_for_best_model load_best_model_at_end"}},
    .per_worker = true);

OFFICIAL_CONVERTED_FLAG(
    BaseConfig, early_stop, std::optional<std::string>, std::nullopt, EarlyStopOf,
    "Stop training after N evaluations in a row without a better METRIC: METRIC:max:N or METRIC:min:N, where max means "
    "that more is better. Evaluations of earlier runs in --model_dir with this flag or --keep_best count.",
    .other_names = {
        {"patience early_stop_patience early_stopping early_stopping_patience stop_if_no_increase no_improve"}});

OFFICIAL_FLAG(
    BaseConfig, batch_size,
    "Examples per step, in training and evaluation. The batch is divided among all GPUs: with 4 GPUs, 32 is 8 on "
    "each.",
    .short_name = "bs", .key = true, .range = AtLeast(1),
    .other_names = {{"train_batch_size per_gpu_batch_size per_device_train_batch_size batch_size_per_gpu "
                     "minibatch minibatch_size micro_batch_size tokens_per_batch max_tokens",
                     " (of all GPUs together)"}});

OFFICIAL_FLAG(BaseConfig, num_gpus, "Number of GPUs to train on: 0 trains on the CPU, -1 on all GPUs of this machine.",
              .short_name = "ng", .key = true, .range = AtLeast(-1), .unset_means = "1 if there is a GPU, else 0",
              .other_names = {{"multi_gpu multi_gpus", "=-1 (all GPUs)"},
                              {"gpu gpus ngpu ngpus n_gpu n_gpus gpu_count num_devices devices nproc_per_node "
                               "num_replicas world_size"},
                              {"no_cuda no_gpu cpu use_cpu cpu_only", "=0"},
                              {"device accelerator use_gpu use_cuda cuda", " (0 is the CPU)"}},
              .per_worker = true);

OFFICIAL_FLAG(
    BaseConfig, hooks,
    "Training hooks. LoggingTensorHook adds learning rate, accuracy and, unless it is the loss itself, cross entropy "
    "to the lines of the log; ProfilerHook writes a Chrome trace of a step (timeline-N.json) every 1000 steps; "
    "ExamplesPerSecondHook writes the throughput to metric.log every 100 steps, LoggingMetricHook the loss every 10 "
    "minutes. Case is ignored; --hooks= runs none.",
    .short_name = "hk", .key = true,
    .choices = {"LoggingTensorHook", "ProfilerHook", "ExamplesPerSecondHook", "LoggingMetricHook"}, .any_case = true,
    .other_names = {{"profile profiler trace", "=ProfilerHook"}}, .per_worker = true);

OFFICIAL_FLAG(
    BaseConfig, export_dir,
    "After training, or after the evaluation of --eval_only, write a SavedModel to a new subdirectory of this "
    "directory, or what --export_format says.",
    .short_name = "ed", .key = true,
    .other_names = {{"export saved_model saved_model_dir savedmodel_dir export_path export_model_dir"}},
    .per_worker = true);

OFFICIAL_CHOICE_FLAG(
    BaseConfig, export_format, kExportFormats,
    "What --export_dir gets: saved_model, for TensorFlow; onnx: model.onnx, for ONNX Runtime and others; or both.",
    .other_names = {{"onnx export_onnx onnx_export to_onnx", "=onnx"}}, .per_worker = true);

OFFICIAL_FLAG(BaseConfig, save_meta_graph,
              "Save TensorFlow's graph of the predictions with each checkpoint, as model.ckpt-N.meta for "
              "import_meta_graph, and as "
              "graph.pbtxt in --model_dir.",
              .other_names = {{"write_meta_graph meta_graph graph_pbtxt"}}, .per_worker = true);

OFFICIAL_FLAG(BaseConfig, eval_only, "Evaluate the latest checkpoint in --model_dir once, instead of training.",
              .key = true,
              .other_names = {{"eval evaluate evaluate_only eval_mode test_only validate validate_only evaluation"}});

OFFICIAL_FLAG(train::TrainOptions, seed,
              "Seed of the initial weights, shuffling, augmentation and dropout. A resumed run keeps its first seed.",
              .range = AtLeast(0), .other_names = {{"random_seed manual_seed rng_seed tf_random_seed"}},
              .per_worker = true);

OFFICIAL_FLAG(BaseConfig, overfit_batches,
              "Train on the first so many batches of the training data again and again, and evaluate on the same: a "
              "model that cannot learn these by heart has a fault. They are always the same batches, and in memory "
              "while a run trains on them.",
              .range = AtLeast(1), .unset_means = "all batches",
              .other_names = {{"overfit overfit_pct limit_train_batches num_overfit_batches"}});

OFFICIAL_FLAG(BaseConfig, shuffle, "Shuffle the training examples, in a different order in each epoch.");

OFFICIAL_FLAG(BaseConfig, augment, "Augment training images at random, for example by crops and flips.");

OFFICIAL_FLAG(
    train::TrainOptions, ema_decay,
    "Keep an exponential moving average of each trainable variable with this decay, such as 0.999; evaluation, "
    "prediction and export use the averages. Checkpoints have them as VARIABLE/ExponentialMovingAverage.",
    .range = {.min = 0, .max = 1, .without_min = true, .without_max = true}, .unset_means = "no averages",
    .other_names = {{"ema model_ema ema_rate model_ema_decay moving_average_decay exponential_smoothing use_ema "
                     "ema_momentum"}});

OFFICIAL_FLAG(train::TrainOptions, save_checkpoints_steps,
              "Save a checkpoint every so many steps, instead of every --save_checkpoints_secs seconds.",
              .range = AtLeast(1),
              .other_names = {{"save_steps save_every checkpoint_steps save_interval save_freq "
                               "save_interval_updates checkpoint_every"}},
              .per_worker = true);

OFFICIAL_FLAG(train::TrainOptions, save_checkpoints_secs, "Save a checkpoint every so many seconds.",
              .range = AtLeast(1), .other_names = {{"save_secs save_interval_secs checkpoint_secs"}},
              .per_worker = true);

OFFICIAL_FLAG(train::TrainOptions, keep_checkpoint_max,
              "Number of checkpoints to keep in --model_dir: older ones are deleted. 0 keeps all.", .range = AtLeast(0),
              .other_names = {{"keep_checkpoints keep_last save_total_limit max_to_keep keep_last_epochs"}},
              .per_worker = true);

OFFICIAL_FLAG(train::TrainOptions, log_every_n_steps,
              "Steps between two lines of progress in the log, and between two entries of metric.log and of the event "
              "file.",
              .range = AtLeast(1),
              .other_names = {{"log_steps log_interval log_freq log_every print_freq log_step_count_steps "
                               "logging_steps"}});

OFFICIAL_FLAG(
    train::TrainOptions, eval_samples,
    "Largest number of examples of each evaluation that the event files show, with what was predicted for them, for "
    "report_main and TensorBoard. 0 shows none.",
    .range = {.min = 0, .max = 100},
    .other_names = {{"num_eval_samples log_images num_log_images log_predictions num_predictions"}},
    .per_worker = true);

OFFICIAL_FLAG(
    BaseConfig, log_format,
    "Format of the log on standard error. bar: lines, and a live progress bar below them; simple: lines; json: "
    "one JSON object per line; none: warnings and errors only; auto: bar on a terminal, otherwise simple.",
    .choices = {"auto", "bar", "simple", "json", "none"},
    .other_names = {{"verbose verbosity v quiet silent log_level progress"}}, .per_worker = true);

OFFICIAL_FLAG(BaseConfig, output,
              "Format of the results on standard output: text, or one JSON object per line for programs.",
              .choices = {"text", "json"}, .other_names = {{"json", "=json"}}, .per_worker = true);

namespace official::flags {
namespace {

absl::Status OneSaveInterval(const CommandLine& command_line) {
  if (!command_line.given("save_checkpoints_steps") || !command_line.given("save_checkpoints_secs") ||
      !absl::GetFlag(FLAGS_save_checkpoints_steps).has_value()) {
    return absl::OkStatus();
  }
  return FlagError("save_checkpoints_steps", "cannot be combined with --save_checkpoints_secs; use one of them");
}

absl::Status RulesAreComplete(const CommandLine&) {
  const std::optional<std::string> keep = absl::GetFlag(FLAGS_keep_best), stop = absl::GetFlag(FLAGS_early_stop);
  if (keep && !KeepBestOf(keep)) {
    return FlagError("keep_best", "needs METRIC:max:N or METRIC:min:N with N of at least 1, such as loss:min:3");
  }
  if (stop && !EarlyStopOf(stop)) {
    return FlagError("early_stop", "needs METRIC:max:N or METRIC:min:N with N of at least 1, such as loss:min:3");
  }
  return absl::OkStatus();
}

absl::Status FormatNeedsDirectory(const CommandLine& command_line) {
  if (!command_line.given("export_format") || absl::GetFlag(FLAGS_export_dir)) return absl::OkStatus();
  return FlagError("export_format", "needs --export_dir, the directory to write to");
}

absl::Status CleanLeavesNothing(const CommandLine& command_line) {
  if (!absl::GetFlag(FLAGS_clean)) return absl::OkStatus();
  if (absl::GetFlag(FLAGS_eval_only)) {
    return FlagError("eval_only", "cannot be combined with --clean, which deletes what is to be evaluated");
  }
  if (command_line.has("resume") && command_line.ValueOf("resume") == "must") {
    return FlagError("resume", "cannot be combined with --clean, which deletes what is to be resumed");
  }
  return absl::OkStatus();
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
  FlagGroup group = ThisGroup();
  group.validators = {OneSaveInterval, FormatNeedsDirectory, CleanLeavesNothing, RulesAreComplete};
  return group;
}

absl::Status PredictAlone(const CommandLine& command_line) {
  if (!command_line.given("predict")) return absl::OkStatus();
  const bool eval_only = absl::GetFlag(FLAGS_eval_only);
  if (!eval_only && !absl::GetFlag(FLAGS_export_dir)) return absl::OkStatus();
  return FlagError("predict", absl::StrCat("cannot be combined with --", eval_only ? "eval_only" : "export_dir",
                                           "; run the program once for each"));
}

BaseConfig BaseFromFlags(const CommandLine& command_line) {
  BaseConfig config = FromFlags<BaseConfig>();
  config.data_dir_given = command_line.has("data_dir") && command_line.given("data_dir");
  config.seed_given = command_line.has("seed") && command_line.given("seed");
  config.has_model_dir = command_line.has("model_dir");
  config.model_dir_given = config.has_model_dir && command_line.given("model_dir");
  if (!command_line.uses("export_dir")) config.export_dir.reset();
  if (!command_line.uses("save_meta_graph")) config.save_meta_graph = false;
  return config;
}

}  // namespace official::flags
