#include "utils/flags/device.h"

#include <optional>
#include <string>

#include "absl/flags/declare.h"
#include "absl/strings/str_cat.h"
#include "utils/flags/config_flag.h"

ABSL_DECLARE_FLAG(std::string, distribution_strategy);

OFFICIAL_FLAG_GROUP(device);

namespace official::flags {
namespace {

constexpr char kNoCloud[] = "a run uses the TPU cores of the machine that it runs on";

}  // namespace
}  // namespace official::flags

OFFICIAL_FLAG_WITHOUT_FIELD(std::optional<std::string>, tpu, std::nullopt,
                            "local: the TPU of this machine, the only one that --distribution_strategy=tpu uses.",
                            .other_names = {{"tpu_name master"}});

OFFICIAL_FLAG_WITHOUT_FIELD(std::optional<std::string>, tpu_zone, std::nullopt, "Zone of the TPU.",
                            .not_used = kNoCloud);

OFFICIAL_FLAG_WITHOUT_FIELD(std::optional<std::string>, tpu_gcp_project, std::nullopt, "Cloud project of the TPU.",
                            .not_used = kNoCloud);

OFFICIAL_FLAG_WITHOUT_FIELD(int, num_tpu_shards, 8, "Shards of the TPU.",
                            .not_used = "each TPU core of the machine is a replica", .other_names = {{"num_shards"}});

namespace official::flags {
namespace {

absl::Status LocalTpu(const CommandLine&) {
  const std::optional<std::string> tpu = absl::GetFlag(FLAGS_tpu);
  if (!tpu.has_value() || tpu->empty()) return absl::OkStatus();
  if (*tpu != "local") {
    return FlagError("tpu", absl::StrCat(kNoCloud,
                                         "; start the program there, with --distribution_strategy=tpu "
                                         "instead of this"));
  }
  if (absl::GetFlag(FLAGS_distribution_strategy) == "tpu") return absl::OkStatus();
  return FlagError("tpu", "is for --distribution_strategy=tpu; give that instead");
}

}  // namespace

FlagGroup DeviceFlags() {
  FlagGroup group = ThisGroup();
  group.validators = {LocalTpu};
  return group;
}

}  // namespace official::flags
