// transformer_main: trains and evaluates the official Transformer.

#include <iostream>
#include <optional>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "official/transformer/transformer_run.h"
#include "utils/compute/core/status.h"
#include "utils/flags/main.h"
#include "utils/misc/gpu_count.h"

ABSL_FLAG(std::string, param_set, "big", "The size of the network and what goes with it.");
ABSL_FLAG(std::string, params_override, "",
          "Parameters in place of the set's: name=value,name=value; a wrong name lists them all.");
ABSL_FLAG(bool, static_batch, false, "Batches of one shape: sentences are padded to the longest there may be.");
ABSL_FLAG(std::optional<int64_t>, train_steps, std::nullopt,
          "Steps to train in all, in place of --train_epochs; whole rounds of --steps_between_evals.");
ABSL_FLAG(int64_t, steps_between_evals, 1000, "Steps between two evaluations, with --train_steps.");

namespace official::transformer {
namespace {

bool HasSeveralGpus(std::optional<int> num_gpus) {
  return num_gpus == -1 ? misc::CountVisibleGpus().count > 1 : num_gpus.value_or(1) > 1;
}

absl::StatusOr<ModelParams> ParamsFromFlags(std::optional<int> num_gpus) {
  ASSIGN_OR_RETURN(ModelParams params, ParamsOf(absl::GetFlag(FLAGS_param_set), HasSeveralGpus(num_gpus)));
  RETURN_IF_ERROR(OverrideParams(absl::GetFlag(FLAGS_params_override), &params));
  return params;
}

absl::Status CheckParameters(const flags::CommandLine& command_line) {
  return ParamsFromFlags(flags::BaseFromFlags(command_line).num_gpus).status();
}

absl::Status StepsOrEpochs(const flags::CommandLine& command_line) {
  const std::optional<int64_t> steps = absl::GetFlag(FLAGS_train_steps);
  if (!steps) return absl::OkStatus();
  if (command_line.given("train_epochs")) {
    return flags::FlagError("train_steps", "cannot be combined with --train_epochs; give one of them");
  }
  if (*steps >= absl::GetFlag(FLAGS_steps_between_evals)) return absl::OkStatus();
  return flags::FlagError("train_steps", absl::StrCat("is less than one round of --steps_between_evals=",
                                                      absl::GetFlag(FLAGS_steps_between_evals)));
}

// Of the shared flags.
absl::Status WhatIsMissing(const flags::CommandLine& command_line) {
  const flags::BaseConfig base = flags::BaseFromFlags(command_line);
  if (base.export_dir) return flags::FlagError("export_dir", "does not work for this model yet: leave it out");
  if (!base.stop_threshold) return absl::OkStatus();
  return flags::FlagError("stop_threshold", "does not work for this model yet; give --train_steps or --train_epochs");
}

std::vector<std::pair<std::string, std::string>> DefaultsOfSet() {
  const absl::StatusOr<ModelParams> params = ParamsOf(absl::GetFlag(FLAGS_param_set), false);
  if (!params.ok()) return {};  // told by its choices
  return {{"batch_size", absl::StrCat(params->default_batch_size)}};
}

flags::Program TransformerProgram() {
  return {
      .name = "transformer_main",
      .description =
          "Trains the Transformer to translate, on the TFRecord files and the vocabulary that prepare_data_main makes, "
          "and evaluates it. --batch_size counts the ids of a batch.",
      .examples = {{"transformer_main --param_set=base --data_dir=/data/ende", "train for 10 epochs"},
                   {"transformer_main --train_steps=100000 --steps_between_evals=5000", "train for so many steps"},
                   {"transformer_main --param_set=tiny --use_synthetic_data --max_train_steps=100",
                    "measure the speed of training"}},
      .defaults = {{"data_dir", "/tmp/translate_ende"},
                   {"model_dir", "/tmp/transformer_model"},
                   {"train_epochs", "10"}},
      .dependent_defaults = DefaultsOfSet,
      .flags =
          {.name = "transformer",
           .flags = {{.name = "param_set", .short_name = "mp", .key = true, .choices = {"tiny", "base", "big"}},
                     {.name = "params_override", .key = true},
                     {.name = "static_batch", .key = true},
                     {.name = "train_steps",
                      .short_name = "ts",
                      .key = true,
                      .range = flags::AtLeast(1),
                      .unset_means = "--train_epochs decides"},
                     {.name = "steps_between_evals", .short_name = "sbe", .key = true, .range = flags::AtLeast(1)}},
           .validators = {CheckParameters, StepsOrEpochs, WhatIsMissing}},
  };
}

absl::Status Main(const flags::CommandLine& command_line) {
  const run::Config shared = run::ConfigFromFlags(command_line);
  ASSIGN_OR_RETURN(const ModelParams params, ParamsFromFlags(shared.base.num_gpus));
  const TransformerConfig config = {shared,
                                    absl::GetFlag(FLAGS_param_set),
                                    params,
                                    absl::GetFlag(FLAGS_static_batch),
                                    absl::GetFlag(FLAGS_train_steps),
                                    absl::GetFlag(FLAGS_steps_between_evals)};
  RETURN_IF_ERROR(run::InitLogging(config));
  return RunTransformer(config, std::cout);
}

}  // namespace
}  // namespace official::transformer

int main(int argc, char** argv) {
  return official::flags::RunMain(argc, argv, official::transformer::TransformerProgram(), official::transformer::Main);
}
