#include "utils/flags/device.h"

#include <optional>
#include <string>

#include "absl/flags/flag.h"

ABSL_FLAG(std::optional<std::string>, tpu, std::nullopt, "TPUs are not supported: this flag must stay unset.");
ABSL_FLAG(std::optional<std::string>, tpu_zone, std::nullopt, "Zone of the TPU.");
ABSL_FLAG(std::optional<std::string>, tpu_gcp_project, std::nullopt, "Cloud project of the TPU.");
ABSL_FLAG(int, num_tpu_shards, 8, "Shards of the TPU.");

namespace official::flags {
namespace {

constexpr char kNoTpus[] = "TPUs are not supported";

absl::Status NoTpu(const CommandLine&) {
  if (!absl::GetFlag(FLAGS_tpu).has_value()) return absl::OkStatus();
  return FlagError("tpu", "TPUs are not supported; leave --tpu out and use --num_gpus, or --num_gpus=0 for the CPU");
}

}  // namespace

FlagGroup DeviceFlags() {
  return {
      .name = "device",
      .flags = {{.name = "tpu"},
                {.name = "tpu_zone", .not_used = kNoTpus},
                {.name = "tpu_gcp_project", .not_used = kNoTpus},
                {.name = "num_tpu_shards", .not_used = kNoTpus}},
      .validators = {NoTpu},
  };
}

}  // namespace official::flags
