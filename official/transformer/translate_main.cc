// translate_main: translates text with what transformer_main has trained.
#include <unistd.h>

#include <iostream>
#include <optional>
#include <string>

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "official/transformer/model_params.h"
#include "official/transformer/translate_run.h"
#include "utils/compute/core/status.h"
#include "utils/files/user_dirs.h"
#include "utils/flags/config_flag.h"
#include "utils/flags/console.h"
#include "utils/flags/default_dirs.h"
#include "utils/flags/main.h"
#include "utils/flags/one_device.h"
#include "utils/flags/performance.h"
#include "utils/flags/shared_groups.h"
#include "utils/logs/log.h"
#include "utils/train/options.h"

ABSL_DECLARE_FLAG(int, batch_size);
ABSL_DECLARE_FLAG(std::optional<int>, num_gpus);
ABSL_FLAG(std::optional<std::string>, param_set, std::nullopt, "Size of the network.");
ABSL_FLAG(std::string, params_override, "",
          "Parameters of the network that differ from those of --param_set, for example "
          "hidden_size=256,vocab_size=8192, and of the beam search: beam_size (4 unless given), alpha (0.6) and "
          "extra_decode_length (100).");
ABSL_FLAG(std::string, vocab_file, "",
          "Vocabulary file that the network was trained with, for example vocab.ende.32768.");
ABSL_FLAG(std::optional<std::string>, text, std::nullopt, "A sentence to translate.");
ABSL_FLAG(std::optional<std::string>, file, std::nullopt, "Text file to translate, one sentence per line.");
ABSL_FLAG(std::optional<std::string>, file_out, std::nullopt, "File to write the translation of --file to.");

namespace official::transformer {
namespace {

absl::Status CheckFileIsNamed(const flags::CommandLine& command_line) {
  if (absl::GetFlag(FLAGS_file) || !command_line.given("file")) return absl::OkStatus();
  return flags::FlagError("file", "names no file; without the flag, standard input is translated");
}

absl::Status CheckFileOutHasFile(const flags::CommandLine&) {
  if (!absl::GetFlag(FLAGS_file_out) || absl::GetFlag(FLAGS_file)) return absl::OkStatus();
  return flags::FlagError("file_out", "needs --file, the text file to translate");
}

absl::Status OneGpuAtMost(const flags::CommandLine&) {
  const std::optional<int> num_gpus = absl::GetFlag(FLAGS_num_gpus);
  if (!num_gpus || *num_gpus == 0 || *num_gpus == 1) return absl::OkStatus();
  return flags::FlagError("num_gpus", "needs to be 0 or 1: translate_main uses one device");
}

flags::Program TranslateProgram() {
  return {
      .name = "translate_main",
      .description =
          "Translates a sentence, a text file or, without either, standard input line by line, with the latest "
          "checkpoint of transformer_main in --model_dir.",
      .examples = {{"translate_main --vocab_file=vocab.ende.32768 --text=\"hello world\"", "translate a sentence"},
                   {"translate_main -md run1 -vf data/vocab.ende.8192 --file=test.en --file_out=test.de",
                    "translate a file"},
                   {"translate_main -md run1 -vf data/vocab.ende.8192", "translate standard input"}},
      .defaults = {{"model_dir", files::DefaultModelDir("transformer_model")}},
      .flags = {.name = "translate",
                .flags = {{.name = "model_dir",
                           .short_name = "md",
                           .key = true,
                           .required = true,
                           .help = "Directory in which transformer_main trained: its latest checkpoint is used."},
                          {.name = "param_set",
                           .short_name = "mp",
                           .key = true,
                           .choices = {"tiny", "base", "big"},
                           .unset_means = "that of the training in --model_dir, else big"},
                          {.name = "params_override", .key = true},
                          {.name = "vocab_file", .short_name = "vf", .key = true, .required = true},
                          {.name = "text", .key = true, .unset_means = "none", .is_text = true},
                          {.name = "file", .key = true, .unset_means = "none"},
                          {.name = "file_out", .key = true, .unset_means = "standard output"},
                          {.name = "batch_size",
                           .short_name = "bs",
                           .key = true,
                           .range = flags::AtLeast(1),
                           .help = "Sentences of --file to translate at a time: more need more memory."},
                          {.name = "num_gpus",
                           .short_name = "ng",
                           .key = true,
                           .unset_means = "1 if there is a GPU, else 0",
                           .help = "1 translates on a GPU, 0 on the CPU."},
                          flags::OneDeviceStrategyFlag(),
                          flags::OneDevicePluginFlag(),
                          {.name = "dtype",
                           .short_name = "dt",
                           .key = true,
                           .choices = {"fp16", "bf16", "fp32"},
                           .help = "Precision of the computation."},
                          flags::SharedFlag("intra_op_parallelism_threads"),
                          flags::OneDeviceTimeoutFlag(),
                          flags::SharedFlag("compile_timeout_secs"),
                          flags::OutputFlag(),
                          flags::LogFormatFlag()},
                .validators = {CheckFileIsNamed, CheckFileOutHasFile, OneGpuAtMost, flags::PjrtDevicesAlone}},
      .shared_flags = false,
      .network = {{"param_set"}, {"params_override", NetworkPart, /*appends=*/true}},
      .in_place_of = ParamsOverrideFor,
  };
}

absl::Status Main(const flags::CommandLine& command_line) {
  RETURN_IF_ERROR(flags::StartLog());
  for (const std::string& note : flags::NotesOnFormerDefaults(command_line)) {
    LOG(INFO) << note;
  }
  const auto options = flags::FromFlags<train::TrainOptions>();
  if (!command_line.taken_from_training().empty()) {
    LOG(INFO) << "as " << options.model_dir << " was trained: " << command_line.taken_from_training();
  }
  std::optional<std::string> text = absl::GetFlag(FLAGS_text);
  if (!text && command_line.given("text")) text = "";  // an empty text is one, too
  return RunTranslate({.model_dir = options.model_dir,
                       .param_set = absl::GetFlag(FLAGS_param_set).value_or("big"),
                       .params_override = absl::GetFlag(FLAGS_params_override),
                       .vocab_file = absl::GetFlag(FLAGS_vocab_file),
                       .text = text,
                       .file = absl::GetFlag(FLAGS_file),
                       .file_out = absl::GetFlag(FLAGS_file_out),
                       .batch_size = absl::GetFlag(FLAGS_batch_size),
                       .dtype = options.dtype,
                       .num_gpus = absl::GetFlag(FLAGS_num_gpus),
                       .performance = flags::FromFlags<flags::PerformanceConfig>(),
                       .json = flags::WantsJson()},
                      STDIN_FILENO, std::cout);
}

}  // namespace
}  // namespace official::transformer

int main(int argc, char** argv) {
  return official::flags::RunMain(argc, argv, official::transformer::TranslateProgram(), official::transformer::Main);
}
