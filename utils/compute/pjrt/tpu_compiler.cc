#include "utils/compute/pjrt/tpu_compiler.h"

#include <sched.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/compute/pjrt/client.h"

namespace official::compute {
namespace {

// A network namespace of its own has no way out. Where neither it nor a user's own is allowed, the environment alone
// keeps libtpu.so from asking the network about the machine.
void LeaveNetwork() {
  for (const auto& [name, value] : {std::pair{"TPU_SKIP_MDS_QUERY", "1"},
                                    {"TPU_WORKER_HOSTNAMES", "localhost"},
                                    {"TPU_ACCELERATOR_TYPE", "v5litepod-4"},  // any: the topology is given
                                    {"TPU_LOG_DIR", "disabled"},
                                    {"TPU_STDERR_LOG_LEVEL", "3"},
                                    {"ALLOW_MULTIPLE_LIBTPU_LOAD", "1"}}) {
    setenv(name, value, /*overwrite=*/1);
  }
  if (unshare(CLONE_NEWNET) != 0) (void)unshare(CLONE_NEWUSER | CLONE_NEWNET);
}

// The sum of the times of all ops has -1 for each whose time is not known. It is a float.
void SetTime(double sum, CompiledCost& cost) {
  constexpr int64_t kExact = 64;
  cost.unknown_ops = -static_cast<int64_t>(std::floor(sum));
  if (cost.unknown_ops >= 0 && cost.unknown_ops <= kExact) cost.seconds = sum + static_cast<double>(cost.unknown_ops);
}

}  // namespace

absl::StatusOr<std::unique_ptr<TpuCompiler>> TpuCompiler::Create(const std::string& path, const std::string& topology) {
  LeaveNetwork();
  // A compilation may take hours, and who waits for it can end it.
  constexpr std::chrono::hours kLong(24 * 365);
  ASSIGN_OR_RETURN(const PjrtPlugin* const plugin,
                   PjrtPlugin::LoadCompiler(
                       path, {.deadline = kLong, .compile_deadline = kLong, .tell = [](const std::string&) {}}));
  auto args = OFFICIAL_PJRT_ARGS(PJRT_TopologyDescription_Create);
  args.topology_name = topology.c_str();
  args.topology_name_size = topology.size();
  RETURN_IF_ERROR(plugin->Call(plugin->api().PJRT_TopologyDescription_Create, args,
                               absl::StrCat("the PJRT plugin ", path, " knows no chips ", topology)));
  std::unique_ptr<TpuCompiler> compiler(new TpuCompiler(*plugin, topology, args.topology));
  RETURN_IF_ERROR(compiler->CountChips());
  return compiler;
}

absl::Status TpuCompiler::CountChips() {
  auto args = OFFICIAL_PJRT_ARGS(PJRT_TopologyDescription_GetDeviceDescriptions);
  args.topology = topology_;
  RETURN_IF_ERROR(plugin_.Call(plugin_.api().PJRT_TopologyDescription_GetDeviceDescriptions, args,
                               absl::StrCat("the chips of ", name_)));
  num_chips_ = static_cast<int>(args.num_descriptions);
  return absl::OkStatus();
}

TpuCompiler::~TpuCompiler() {
  auto args = OFFICIAL_PJRT_ARGS(PJRT_TopologyDescription_Destroy);
  args.topology = topology_;
  (void)plugin_.Call(plugin_.api().PJRT_TopologyDescription_Destroy, args, "freeing a topology");
}

absl::StatusOr<CompiledModule> TpuCompiler::Compile(absl::string_view module, int num_replicas) const {
  if (num_replicas > num_chips_) {
    return absl::InvalidArgumentError(
        absl::StrCat(num_replicas, " chips were asked for, and ", name_, " has ", num_chips_));
  }
  const PJRT_Program program = PjrtProgramOf(module);
  const std::string options = PjrtCompileOptions(num_replicas);
  auto args = OFFICIAL_PJRT_ARGS(PJRT_Compile);
  args.topology = topology_;
  args.program = &program;
  args.compile_options = options.data();
  args.compile_options_size = options.size();
  RETURN_IF_ERROR(plugin_.Call(plugin_.api().PJRT_Compile, args, "compiling a program", CallWatch::Kind::kCompile));
  absl::StatusOr<CompiledModule> compiled = Describe(args.executable);
  auto destroy = OFFICIAL_PJRT_ARGS(PJRT_Executable_Destroy);
  destroy.executable = args.executable;
  (void)plugin_.Call(plugin_.api().PJRT_Executable_Destroy, destroy, "freeing a program");
  return compiled;
}

absl::StatusOr<CompiledModule> TpuCompiler::Describe(PJRT_Executable* executable) const {
  CompiledModule compiled;
  ASSIGN_OR_RETURN(compiled.cost, CostOf(executable));
  ASSIGN_OR_RETURN(compiled.hlo, HloOf(executable));
  return compiled;
}

absl::StatusOr<std::string> TpuCompiler::HloOf(PJRT_Executable* executable) const {
  PJRT_Program program{};
  program.struct_size = PJRT_Program_STRUCT_SIZE;
  auto args = OFFICIAL_PJRT_ARGS(PJRT_Executable_OptimizedProgram);
  args.executable = executable;
  args.program = &program;
  // The first call tells the size, the second one fills the buffer.
  const auto get = [&] {
    return plugin_.Call(plugin_.api().PJRT_Executable_OptimizedProgram, args, "the HLO of a program");
  };
  RETURN_IF_ERROR(get());
  std::string code(program.code_size, '\0');
  program.code = code.data();
  RETURN_IF_ERROR(get());
  const absl::string_view format(program.format, program.format_size);
  if (format == "hlo_with_config") return code;
  return absl::UnimplementedError(absl::StrCat("the PJRT plugin ", plugin_.path(), " gives a program as ", format));
}

absl::StatusOr<CompiledCost> TpuCompiler::CostOf(PJRT_Executable* executable) const {
  CompiledCost cost;
  auto analysis = OFFICIAL_PJRT_ARGS(PJRT_Executable_GetCostAnalysis);
  analysis.executable = executable;
  RETURN_IF_ERROR(plugin_.Call(plugin_.api().PJRT_Executable_GetCostAnalysis, analysis, "the cost of a program"));
  for (size_t i = 0; i < analysis.num_properties; ++i) {
    const PJRT_NamedValue& property = analysis.properties[i];
    if (property.type != PJRT_NamedValue_kFloat) continue;
    const absl::string_view name(property.name, property.name_size);
    if (name == "optimal_seconds") SetTime(property.float_value, cost);
    if (name == "flops") cost.flops = property.float_value;
    if (name == "bytes accessed") cost.bytes_accessed = property.float_value;
  }
  auto memory = OFFICIAL_PJRT_ARGS(PJRT_Executable_GetCompiledMemoryStats);
  memory.executable = executable;
  RETURN_IF_ERROR(
      plugin_.Call(plugin_.api().PJRT_Executable_GetCompiledMemoryStats, memory, "the memory of a program"));
  cost.memory_bytes = memory.argument_size_in_bytes + memory.output_size_in_bytes - memory.alias_size_in_bytes +
                      memory.temp_size_in_bytes + memory.generated_code_size_in_bytes;
  return cost;
}

}  // namespace official::compute
