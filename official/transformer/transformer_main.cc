// transformer_main: trains and evaluates the official Transformer.

#include <iostream>
#include <optional>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "official/transformer/transformer_run.h"
#include "utils/compute/core/status.h"
#include "utils/files/user_dirs.h"
#include "utils/flags/config_flag.h"
#include "utils/flags/performance.h"
#include "utils/flags/skip_bad_records.h"
#include "utils/misc/distribution_utils.h"
#include "utils/misc/gpu_count.h"
#include "utils/run/standalone/main.h"

ABSL_FLAG(std::string, param_set, "big", "Size of the network.");
ABSL_FLAG(
    std::string, params_override, "",
    "Parameters that differ from those of --param_set, for example vocab_size=8192,num_heads=4. A wrong name lists "
    "all parameters.");
ABSL_FLAG(bool, static_batch, false,
          "Give all batches the same shape: sentences are padded to the maximum length (max_length).");
ABSL_FLAG(std::optional<int64_t>, train_steps, std::nullopt,
          "Steps to train in total, instead of --train_epochs; rounded down to a multiple of --steps_between_evals.");
ABSL_FLAG(int64_t, steps_between_evals, 1000, "With --train_steps: steps between two evaluations.");
ABSL_FLAG(std::optional<std::string>, bleu_source, std::nullopt,
          "Text file, one sentence per line, to translate after each evaluation for its BLEU score. Needs --bleu_ref "
          "and --vocab_file.");
ABSL_FLAG(std::optional<std::string>, bleu_ref, std::nullopt,
          "Text file with the reference translation of --bleu_source, line by line.");
ABSL_FLAG(std::optional<std::string>, vocab_file, std::nullopt,
          "Vocabulary file that prepare_data_main wrote with the data. BLEU and --export_dir need it.");
ABSL_FLAG(std::optional<double>, bleu_threshold, std::nullopt, "The same as --stop_threshold.");

namespace official::transformer {
namespace {

absl::StatusOr<ModelParams> ParamsFromFlags() {
  const auto count_gpus = [] {
    misc::LoadKernelsAtOnce();
    return misc::CountVisibleGpus();
  };
  const bool multi_gpu = misc::AskForSeveralGpus(flags::FromFlags<flags::BaseConfig>().num_gpus,
                                                 flags::FromFlags<flags::PerformanceConfig>().devices, count_gpus);
  ASSIGN_OR_RETURN(ModelParams params, ParamsOf(absl::GetFlag(FLAGS_param_set), multi_gpu));
  RETURN_IF_ERROR(OverrideParams(absl::GetFlag(FLAGS_params_override), &params));
  return params;
}

absl::Status CheckParameters(const flags::CommandLine&) { return ParamsFromFlags().status(); }

absl::Status StepsOrEpochs(const flags::CommandLine& command_line) {
  const std::optional<int64_t> steps = absl::GetFlag(FLAGS_train_steps);
  if (!steps) return absl::OkStatus();
  if (command_line.given("train_epochs")) {
    return flags::FlagError("train_steps", "cannot be combined with --train_epochs; give one of them");
  }
  if (*steps >= absl::GetFlag(FLAGS_steps_between_evals)) return absl::OkStatus();
  return flags::FlagError("train_steps", absl::StrCat("needs to be at least --steps_between_evals=",
                                                      absl::GetFlag(FLAGS_steps_between_evals)));
}

absl::Status WholeBleu(const flags::CommandLine& command_line) {
  const bool source = absl::GetFlag(FLAGS_bleu_source).has_value(), ref = absl::GetFlag(FLAGS_bleu_ref).has_value();
  if (source && !ref) return flags::FlagError("bleu_source", "needs --bleu_ref, the reference translation");
  if (ref && !source) return flags::FlagError("bleu_ref", "needs --bleu_source, the text to translate");
  if (source && !absl::GetFlag(FLAGS_vocab_file)) {
    return flags::FlagError("bleu_source", "needs --vocab_file, the vocabulary that the data was made with");
  }
  const bool stop = flags::BaseFromFlags(command_line).stop_threshold.has_value();
  const bool bleu = absl::GetFlag(FLAGS_bleu_threshold).has_value();
  if (stop && bleu) {
    return flags::FlagError("bleu_threshold", "is another name of --stop_threshold; give one of them");
  }
  if ((stop || bleu) && !source) {
    return flags::FlagError(stop ? "stop_threshold" : "bleu_threshold",
                            "is a BLEU, which needs --bleu_source, --bleu_ref and --vocab_file");
  }
  return absl::OkStatus();
}

absl::Status ExportHasVocabulary(const flags::CommandLine& command_line) {
  if (!flags::BaseFromFlags(command_line).export_dir || absl::GetFlag(FLAGS_vocab_file)) return absl::OkStatus();
  return flags::FlagError("export_dir", "needs --vocab_file, the vocabulary that the data was made with");
}

std::vector<std::pair<std::string, std::string>> DefaultsOfSet() {
  absl::StatusOr<ModelParams> params = ParamsOf(absl::GetFlag(FLAGS_param_set), false);
  // What is wrong in them is told by the choices and CheckParameters.
  if (!params.ok() || !OverrideParams(absl::GetFlag(FLAGS_params_override), &*params).ok()) return {};
  return {{"batch_size", absl::StrCat(params->default_batch_size)}};
}

flags::Program TransformerProgram() {
  return {
      .name = "transformer_main",
      .description =
          "Trains the Transformer to translate, on the files that prepare_data_main writes, and evaluates it.",
      .examples = {{"transformer_main --param_set=base --data_dir=/data/ende", "train for 10 epochs"},
                   {"transformer_main --train_steps=100000 --steps_between_evals=5000", "train for 100000 steps"},
                   {"transformer_main --bleu_source=dev.en --bleu_ref=dev.de --vocab_file=data/vocab.ende.32768 "
                    "--stop_threshold=25",
                    "train until the BLEU is 25"},
                   {"transformer_main --param_set=base --data_dir=/data/ende --model_dir=run1 --eval_only",
                    "evaluate the latest checkpoint"},
                   {"transformer_main --param_set=tiny --use_synthetic_data --max_train_steps=100 --model_dir=speed1",
                    "measure the training speed"}},
      .defaults = {{"data_dir", files::DefaultDataDir("translate_ende")},
                   {"model_dir", files::DefaultModelDir("transformer_model")},
                   {"train_epochs", "10"}},
      .dependent_defaults = DefaultsOfSet,
      .help =
          {{"data_dir", "Directory of the TFRecord files that prepare_data_main wrote."},
           {"batch_size",
            "Tokens per step, in training and evaluation: a batch has as many pairs of sentences as fit, each padded "
            "to the longest. The batch is divided among all GPUs."},
           {"train_epochs",
            "Epochs to train in total, including those of earlier runs in --model_dir. Not used with "
            "--train_steps."},
           {"epochs_between_evals", "Epochs of training between two evaluations. Not used with --train_steps."},
           {"stop_threshold",
            "Stop training when an evaluation's uncased BLEU (0 to 100) is at least this value. Needs "
            "--bleu_source, --bleu_ref and --vocab_file."}},
      .not_used = {{"augment", "there are no images"}, {"data_format", "there are no images"}},
      .flags = {.name = "transformer",
                .flags = {{.name = "param_set", .short_name = "mp", .key = true, .choices = {"tiny", "base", "big"}},
                          {.name = "params_override", .key = true},
                          {.name = "static_batch", .key = true},
                          {.name = "train_steps",
                           .short_name = "ts",
                           .key = true,
                           .range = flags::AtLeast(1),
                           .unset_means = "--train_epochs is used"},
                          {.name = "steps_between_evals", .short_name = "sbe", .key = true, .range = flags::AtLeast(1)},
                          {.name = "bleu_source",
                           .short_name = "bls",
                           .key = true,
                           .unset_means = "no BLEU",
                           .per_worker = true,
                           .input = true},
                          {.name = "bleu_ref",
                           .short_name = "blr",
                           .key = true,
                           .unset_means = "no BLEU",
                           .per_worker = true,
                           .input = true},
                          {.name = "vocab_file",
                           .short_name = "vf",
                           .key = true,
                           .unset_means = "none",
                           .per_worker = true,
                           .input = true},
                          {.name = "bleu_threshold", .short_name = "bt"},
                          flags::SkipBadRecordsFlag()},
                .validators = {CheckParameters, StepsOrEpochs, WholeBleu, ExportHasVocabulary,
                               flags::ThresholdOf("stop_threshold", "uncased BLEU", 100),
                               flags::ThresholdOf("bleu_threshold", "uncased BLEU", 100)}},
      .network = {{"param_set"}, {"params_override", NetworkPart, /*appends=*/true}},
      .in_place_of = ParamsOverrideFor,
      .rehearses = true,
  };
}

absl::Status Main(const flags::CommandLine& command_line) {
  run::Config shared = run::ConfigFromFlags(command_line);
  if (!shared.base.stop_threshold) shared.base.stop_threshold = absl::GetFlag(FLAGS_bleu_threshold);
  ASSIGN_OR_RETURN(const ModelParams params, ParamsFromFlags());
  const TransformerConfig config = {shared,
                                    absl::GetFlag(FLAGS_param_set),
                                    params,
                                    absl::GetFlag(FLAGS_static_batch),
                                    absl::GetFlag(FLAGS_train_steps),
                                    absl::GetFlag(FLAGS_steps_between_evals),
                                    absl::GetFlag(FLAGS_vocab_file),
                                    absl::GetFlag(FLAGS_bleu_source),
                                    absl::GetFlag(FLAGS_bleu_ref),
                                    flags::SkipBadRecords()};
  RETURN_IF_ERROR(run::InitLogging(config));
  return RunTransformer(config, std::cout);
}

}  // namespace
}  // namespace official::transformer

int main(int argc, char** argv) {
  return official::run::RunMain(argc, argv, official::transformer::TransformerProgram(), official::transformer::Main);
}
