// TpuCompiler: compiles modules for TPUs that need not be there, by libtpu.so, the PJRT plugin for TPUs.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "utils/compute/pjrt/plugin.h"

namespace official::compute {

// What the compiler says of a module. Its time is that of its own model of the chip: nothing is measured.
struct CompiledCost {
  // Seconds of one run, below 1, without those of `unknown_ops`, exact to 4 microseconds; unset if these are more than
  // 64.
  std::optional<double> seconds;
  int64_t unknown_ops = 0;  // ops, counted as often as they run, whose time the compiler has no model of
  double flops = 0;
  double bytes_accessed = 0;
  // Memory of a chip that the module occupies: arguments, results that take the place of none, temporary values and
  // code.
  int64_t memory_bytes = 0;
};

// A module as the compiler has left it.
struct CompiledModule {
  CompiledCost cost;
  std::string hlo;  // what the chip runs: XLA's HloModuleProtoWithConfig, serialized
};

class TpuCompiler {
 public:
  // Compiles for chips as `topology` names them: "v5e:2x2", "v4:2x2x1", "v5p:2x2x1". From this call on, the calling
  // thread and those that it starts have no network, where the kernel lets a process leave it, and the environment
  // tells libtpu.so not to look for a TPU there. Errors: those of PjrtPlugin::LoadCompiler; InvalidArgument for a
  // topology that the plugin does not know.
  static absl::StatusOr<std::unique_ptr<TpuCompiler>> Create(const std::string& plugin, const std::string& topology);
  TpuCompiler(const TpuCompiler&) = delete;
  TpuCompiler& operator=(const TpuCompiler&) = delete;
  ~TpuCompiler();

  // The number of chips of the topology; each of them is a device.
  int num_chips() const { return num_chips_; }

  // Compiles the text of a StableHLO module for one chip, or for several that run it together: as replicas, which can
  // sum. ResourceExhausted if a chip has too little memory, InvalidArgument for more chips than there are.
  absl::StatusOr<CompiledModule> Compile(absl::string_view module, int num_replicas = 1) const;

 private:
  TpuCompiler(const PjrtPlugin& plugin, std::string name, PJRT_TopologyDescription* topology)
      : plugin_(plugin), name_(std::move(name)), topology_(topology) {}
  absl::Status CountChips();
  absl::StatusOr<CompiledModule> Describe(PJRT_Executable* executable) const;
  absl::StatusOr<CompiledCost> CostOf(PJRT_Executable* executable) const;
  absl::StatusOr<std::string> HloOf(PJRT_Executable* executable) const;

  const PjrtPlugin& plugin_;
  const std::string name_;
  PJRT_TopologyDescription* const topology_;
  int num_chips_ = 0;
};

}  // namespace official::compute
