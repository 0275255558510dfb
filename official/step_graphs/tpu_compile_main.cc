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
          "The chips that the step is compiled for, as libtpu.so names them: v5e:2x2, v4:2x2x1, v5p:2x2x1. The step "
          "uses one of them.");
ABSL_DECLARE_FLAG(std::string, dtype);
ABSL_FLAG(int64_t, batch, 0, "The examples of a step; 0 is the number that docs/performance.md has for the model.");
ABSL_FLAG(bool, find_batch, false,
          "Find the largest batch that a chip has memory for, to an eighth of it, and print the line of that batch.");

namespace official::step_graphs {
namespace {

using compute::CompiledCost;
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
                   {"tpu_compile transformer-base --topology=v4:2x2x1 --find_batch",
                    "the largest batch of the Transformer on a TPU v4"}},
      .flags = {.name = "tpu_compile",
                .flags = {{.name = "libtpu", .key = true},
                          {.name = "topology", .key = true},
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

absl::StatusOr<CompiledCost> Compile(const TpuCompiler& compiler, const TrainedModel& model, DType dtype,
                                     int64_t batch) {
  ASSIGN_OR_RETURN(const std::string module, TpuStepModule(model, dtype, batch));
  return compiler.Compile(module);
}

// "8.56 M images/s"
std::string Rate(double per_second, const std::string& unit) {
  if (per_second >= 1e6) return absl::StrFormat("%.3g M %s/s", per_second / 1e6, unit);
  return absl::StrFormat("%.3g k %s/s", per_second / 1e3, unit);
}

std::string Line(const TrainedModel& model, DType dtype, int64_t batch, const std::string& rest) {
  return absl::StrFormat("| %s, %d %s | %s | %s |\n", model.name, batch, model.unit,
                         dtype == DType::kFloat32 ? "fp32" : "bf16", rest);
}

// The line of a model and type in the table.
absl::StatusOr<std::string> LineOf(const TpuCompiler& compiler, const TrainedModel& model, DType dtype) {
  int64_t batch = absl::GetFlag(FLAGS_batch) > 0 ? absl::GetFlag(FLAGS_batch) : model.batch;
  if (absl::GetFlag(FLAGS_find_batch)) {
    ASSIGN_OR_RETURN(batch, LargestBatch(batch, [&](int64_t examples) -> absl::StatusOr<bool> {
                       const absl::Status status = Compile(compiler, model, dtype, examples).status();
                       if (!status.ok() && !absl::IsResourceExhausted(status)) return status;
                       return status.ok();
                     }));
    if (batch == 0) return Line(model, dtype, batch, "does not fit | | | | |");
  }
  const absl::StatusOr<CompiledCost> cost = Compile(compiler, model, dtype, batch);
  if (absl::IsResourceExhausted(cost.status())) return Line(model, dtype, batch, "does not fit | | | | |");
  if (!cost.ok()) {
    return absl::Status(cost.status().code(), absl::StrCat(model.name, ": ", cost.status().message()));
  }
  std::string time = "unknown | ";
  if (cost->seconds) {
    time = absl::StrFormat("%.3g | %s", *cost->seconds * 1e3,
                           Rate(static_cast<double>(batch) / *cost->seconds, model.unit));
  }
  return Line(model, dtype, batch,
              absl::StrFormat("%s | %d | %.3g | %.3g | %.3g", time, cost->unknown_ops, cost->flops / 1e9,
                              cost->bytes_accessed / 1e9, static_cast<double>(cost->memory_bytes) / (1 << 30)));
}

absl::Status Main(const flags::CommandLine& command_line) {
  ASSIGN_OR_RETURN(const std::vector<TrainedModel> models, ModelsOf(command_line.words()));
  const std::string topology = absl::GetFlag(FLAGS_topology);
  ASSIGN_OR_RETURN(const std::unique_ptr<TpuCompiler> compiler,
                   TpuCompiler::Create(absl::GetFlag(FLAGS_libtpu), topology));
  std::cout << "| training step on one chip of " << topology
            << " | type | ms | rate | ops without a time | GFLOP | GB moved | GiB occupied |\n| --- | --- | --- | --- "
               "| --- | --- | --- "
               "| --- |\n"
            << std::flush;
  for (const TrainedModel& model : models) {
    for (const DType dtype : TypesOf(command_line)) {
      ASSIGN_OR_RETURN(const std::string line, LineOf(*compiler, model, dtype));
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
