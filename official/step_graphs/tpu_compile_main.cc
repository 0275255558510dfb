// tpu_compile_main [MODEL...]: compiles training steps for TPUs that are not there, and prints what the compiler says
// of them.

#include <iostream>
#include <string>
#include <vector>

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "official/step_graphs/step_graphs.h"
#include "official/step_graphs/tpu_step.h"
#include "utils/compute/core/status.h"
#include "utils/compute/pjrt/tpu_compiler.h"
#include "utils/flags/main.h"
#include "utils/misc/text.h"

ABSL_FLAG(std::string, libtpu, "", "The path of libtpu.so, whose compiler is used.");
ABSL_FLAG(std::string, topology, "v5e:2x2",
          "The chips that there are, as libtpu.so names them: v5e:2x2, v5e:2x4, v5e:16x16, v4:2x2x1, v5p:2x2x1.");
ABSL_FLAG(int, chips, 1,
          "The chips that compute a step together, each with a batch of its own, and sum their gradients: one, or all "
          "of --topology.");
ABSL_DECLARE_FLAG(std::string, dtype);
ABSL_FLAG(int64_t, batch, 0,
          "The examples of a step on each chip; 0 is the number that docs/performance.md has for the model.");
ABSL_FLAG(bool, find_batch, false,
          "Also find the largest batch that a chip has memory for, to an eighth of it, in several compilations.");

namespace official::step_graphs {
namespace {

using compute::CompiledCost;
using compute::CompiledModule;
using compute::DType;
using compute::TpuCompiler;

flags::Program ToolProgram() {
  return {
      .name = "tpu_compile",
      .description =
          "Compiles the training step of each MODEL, by default of all, for a TPU that need not be there, and "
          "prints the time of a step by the compiler's own model of the chip, operations, bytes that memory "
          "moves, and memory that the step occupies. Nothing is measured.",
      .examples = {{"tpu_compile mnist --dtype=bf16", "the step of the MNIST network in bfloat16"},
                   {"tpu_compile ncf-ml-1m --topology=v5e:2x4 --chips=8", "the step of 8 chips, with their sums"},
                   {"tpu_compile transformer-base --topology=v4:2x2x1 --find_batch",
                    "the largest batch of the Transformer on a TPU v4"}},
      .flags = {.name = "tpu_compile",
                .flags = {{.name = "libtpu", .key = true, .required = true},
                          {.name = "topology", .key = true},
                          {.name = "chips", .key = true, .range = flags::AtLeast(1)},
                          {.name = "dtype",
                           .key = true,
                           .choices = {"fp32", "bf16"},
                           .help = "The type that the step computes in; both, one after the other, if not given."},
                          {.name = "batch", .key = true, .range = flags::AtLeast(0)},
                          {.name = "find_batch", .key = true}}},
      .words = "MODEL...",
      .shared_flags = false,
  };
}

absl::StatusOr<std::vector<TrainedModel>> ModelsOf(const std::vector<std::string>& words) {
  if (words.empty()) return CountedModels();
  std::vector<TrainedModel> chosen;
  std::vector<std::string> names;
  for (const TrainedModel& model : CountedModels()) names.push_back(CommandLineName(model));
  for (const std::string& word : words) {
    const size_t before = chosen.size();
    for (const TrainedModel& model : CountedModels()) {
      if (CommandLineName(model) == word) chosen.push_back(model);
    }
    if (chosen.size() > before) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("there is no model ", misc::Printable(word), "; the models are ", absl::StrJoin(names, ", ")));
  }
  return chosen;
}

std::vector<DType> TypesOf(const flags::CommandLine& command_line) {
  if (!command_line.given("dtype")) return {DType::kFloat32, DType::kBFloat16};
  return {absl::GetFlag(FLAGS_dtype) == "fp32" ? DType::kFloat32 : DType::kBFloat16};
}

// What a line of the table is of.
struct Step {
  const TpuCompiler& compiler;
  const TrainedModel& model;
  DType dtype;
  int num_chips;
};

absl::StatusOr<CompiledCost> Compile(const Step& step, int64_t batch) {
  ASSIGN_OR_RETURN(const std::string module, TpuStepModule(step.model, step.dtype, batch, step.num_chips));
  absl::StatusOr<CompiledModule> compiled = step.compiler.Compile(module, step.num_chips);
  if (compiled.ok()) return compiled->cost;
  const absl::Status& status = compiled.status();
  return absl::Status(status.code(), absl::StrCat(step.model.name, ": ", status.message()));
}

// "8.56 M images/s"
std::string Rate(double per_second, const std::string& unit) {
  if (per_second >= 1e6) return absl::StrFormat("%.3g M %s/s", per_second / 1e6, unit);
  return absl::StrFormat("%.3g k %s/s", per_second / 1e3, unit);
}

// The cells of a step of all chips.
std::string CellsOf(const Step& step, int64_t batch, const CompiledCost& cost) {
  std::string time = "unknown | ";
  if (cost.seconds) {
    const double examples = static_cast<double>(batch * step.num_chips);
    time = absl::StrFormat("%.3g | %s", *cost.seconds * 1e3, Rate(examples / *cost.seconds, step.model.unit));
  }
  return absl::StrFormat("%s | %d | %.3g | %.3g | %.3g", time, cost.unknown_ops, cost.flops / 1e12,
                         cost.bytes_accessed / 1e9, static_cast<double>(cost.memory_bytes) / (1 << 30));
}

// The cell of the largest batch. It is known whether the guess fits.
absl::StatusOr<std::string> LargestBatchOf(const Step& step, int64_t guess, bool guess_fits) {
  ASSIGN_OR_RETURN(const int64_t batch, LargestBatch(guess, [&](int64_t examples) -> absl::StatusOr<bool> {
                     if (examples == guess) return guess_fits;
                     const absl::Status status = Compile(step, examples).status();
                     if (!status.ok() && !absl::IsResourceExhausted(status)) return status;
                     return status.ok();
                   }));
  return batch == 0 ? std::string("none") : absl::StrCat(batch);
}

// The line of a step in the table.
absl::StatusOr<std::string> LineOf(const Step& step) {
  const int64_t batch = absl::GetFlag(FLAGS_batch) > 0 ? absl::GetFlag(FLAGS_batch) : step.model.batch;
  const absl::StatusOr<CompiledCost> cost = Compile(step, batch);
  if (!cost.ok() && !absl::IsResourceExhausted(cost.status())) return cost.status();
  std::string line = absl::StrFormat("| %s, %d %s | %s | %d | %s |", step.model.name, batch, step.model.unit,
                                     step.dtype == DType::kFloat32 ? "fp32" : "bf16", step.num_chips,
                                     cost.ok() ? CellsOf(step, batch, *cost) : "does not fit | | | | |");
  if (absl::GetFlag(FLAGS_find_batch)) {
    ASSIGN_OR_RETURN(const std::string largest, LargestBatchOf(step, batch, cost.ok()));
    absl::StrAppend(&line, " ", largest, " |");
  }
  return absl::StrCat(line, "\n");
}

// The heading of the table.
std::string Heading(const std::string& topology) {
  std::vector<std::string> cells = {absl::StrCat("training step on chips of ", topology),
                                    "type",
                                    "chips",
                                    "ms",
                                    "rate",
                                    "ops without a time",
                                    "TFLOP",
                                    "GB moved",
                                    "GiB occupied"};
  if (absl::GetFlag(FLAGS_find_batch)) cells.push_back("largest batch");
  const std::vector<std::string> rules(cells.size(), "---");
  return absl::StrCat("| ", absl::StrJoin(cells, " | "), " |\n| ", absl::StrJoin(rules, " | "), " |\n");
}

absl::Status Main(const flags::CommandLine& command_line) {
  ASSIGN_OR_RETURN(const std::vector<TrainedModel> models, ModelsOf(command_line.words()));
  const std::string topology = absl::GetFlag(FLAGS_topology);
  ASSIGN_OR_RETURN(const std::unique_ptr<TpuCompiler> compiler,
                   TpuCompiler::Create(absl::GetFlag(FLAGS_libtpu), topology));
  const int num_chips = absl::GetFlag(FLAGS_chips);
  RETURN_IF_ERROR(CheckChips(num_chips, compiler->num_chips(), topology));
  std::cout << Heading(topology) << std::flush;
  for (const TrainedModel& model : models) {
    for (const DType dtype : TypesOf(command_line)) {
      ASSIGN_OR_RETURN(const std::string line, LineOf({*compiler, model, dtype, num_chips}));
      std::cout << line << std::flush;
    }
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace official::step_graphs

int main(int argc, char** argv) {
  return official::flags::RunMain(argc, argv, official::step_graphs::ToolProgram(), official::step_graphs::Main);
}
