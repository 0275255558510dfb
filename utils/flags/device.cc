#include "utils/flags/device.h"

#include <optional>
#include <string>

#include "utils/flags/config_flag.h"

OFFICIAL_FLAG_GROUP(device);

namespace official::flags {
namespace {

constexpr char kNoTpus[] = "TPUs are not supported";

}  // namespace
}  // namespace official::flags

OFFICIAL_FLAG_WITHOUT_FIELD(std::optional<std::string>, tpu, std::nullopt,
                            "TPUs are not supported: this flag must stay unset.");

OFFICIAL_FLAG_WITHOUT_FIELD(std::optional<std::string>, tpu_zone, std::nullopt, "Zone of the TPU.",
                            .not_used = kNoTpus);

OFFICIAL_FLAG_WITHOUT_FIELD(std::optional<std::string>, tpu_gcp_project, std::nullopt, "Cloud project of the TPU.",
                            .not_used = kNoTpus);

OFFICIAL_FLAG_WITHOUT_FIELD(int, num_tpu_shards, 8, "Shards of the TPU.", .not_used = kNoTpus);

namespace official::flags {
namespace {

absl::Status NoTpu(const CommandLine&) {
  if (!absl::GetFlag(FLAGS_tpu).has_value()) return absl::OkStatus();
  return FlagError("tpu", "TPUs are not supported; leave --tpu out and use --num_gpus, or --num_gpus=0 for the CPU");
}

}  // namespace

FlagGroup DeviceFlags() {
  FlagGroup group = ThisGroup();
  group.validators = {NoTpu};
  return group;
}

}  // namespace official::flags
