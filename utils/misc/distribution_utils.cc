#include "utils/misc/distribution_utils.h"

#include <algorithm>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace official::misc {

absl::StatusOr<int> GetNumGpus(std::optional<int> num_gpus, const std::function<VisibleGpus()>& count_gpus) {
  if (num_gpus == 0) return 0;
  const VisibleGpus gpus = count_gpus();
  if (!num_gpus.has_value()) return gpus.count > 0 ? 1 : 0;
  if (*num_gpus == -1) return gpus.count;
  if (*num_gpus < 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("--num_gpus=%d: needs a number of GPUs, 0 for the CPU or -1 for all GPUs", *num_gpus));
  }
  if (*num_gpus <= gpus.count) return *num_gpus;
  if (gpus.count == 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("--num_gpus=%d: this machine has no GPU to train on (%s); use --num_gpus=0 for the CPU",
                        *num_gpus, gpus.why_none));
  }
  return absl::InvalidArgumentError(
      absl::StrFormat("--num_gpus=%d: this machine shows %d GPU%s; use at most that many, or --num_gpus=-1 for all",
                      *num_gpus, gpus.count, gpus.count == 1 ? "" : "s"));
}

absl::StatusOr<NamedDevices> ParseDevices(absl::string_view devices) {
  constexpr int kMostDevices = 1024;
  NamedDevices named;
  for (const absl::string_view item : absl::StrSplit(devices, ',')) {
    std::string name = absl::AsciiStrToLower(absl::StripAsciiWhitespace(item));
    absl::string_view rest = name;
    absl::ConsumePrefix(&rest, "/");
    absl::ConsumePrefix(&rest, "device:");
    const auto error = [&](absl::string_view why) {
      return absl::InvalidArgumentError(absl::StrCat("--devices=", devices, ": \"", item, "\" ", why));
    };
    const bool is_gpu = absl::ConsumePrefix(&rest, "gpu:");
    int index = -1;
    const bool is_device = (is_gpu || absl::ConsumePrefix(&rest, "cpu:")) && !rest.empty() &&
                           absl::ascii_isdigit(rest[0]) && absl::SimpleAtoi(rest, &index) && index < kMostDevices;
    if (!is_device) return error("is no device; write a list such as gpu:0,gpu:2");
    if (!named.indices.empty() && is_gpu != named.are_gpus) return error("is of another kind than those before");
    if (std::find(named.indices.begin(), named.indices.end(), index) != named.indices.end()) {
      return error("is there twice");
    }
    named.are_gpus = is_gpu;
    named.indices.push_back(index);
  }
  return named;
}

bool AskForSeveralGpus(std::optional<int> num_gpus, const std::optional<std::string>& devices,
                       const std::function<VisibleGpus()>& count_gpus) {
  if (devices) {
    const absl::StatusOr<NamedDevices> named = ParseDevices(*devices);
    return named.ok() && named->are_gpus && named->indices.size() > 1;
  }
  return num_gpus == -1 ? count_gpus().count > 1 : num_gpus.value_or(1) > 1;
}

absl::StatusOr<int> PerDeviceBatchSize(int batch_size, int num_devices, absl::string_view devices, int least) {
  if (num_devices <= 1) return batch_size;
  const int remainder = batch_size % num_devices;
  if (remainder == 0) return batch_size / num_devices;
  const int below = batch_size - remainder;
  const int64_t of_least = (int64_t{least} + num_devices - 1) / num_devices * num_devices;
  const std::string above = absl::StrCat("--batch_size=", std::max(int64_t{below} + num_devices, of_least));
  return absl::InvalidArgumentError(
      absl::StrFormat("When running with multiple %s, batch size must be a multiple of the number of available %s. "
                      "Found %d %s with a batch size of %d; try %s instead.",
                      devices, devices, num_devices, devices, batch_size,
                      below >= least ? absl::StrCat("--batch_size=", below, " or ", above) : above));
}

absl::StatusOr<std::string> StrategyName(absl::string_view distribution_strategy, int num_workers, int num_replicas,
                                         absl::string_view devices) {
  const std::string flag = absl::StrCat("--distribution_strategy=", distribution_strategy);
  if (distribution_strategy == "multi_worker_mirrored" || distribution_strategy == "collective_all_reduce") {
    return "multi_worker_mirrored";
  }
  if (distribution_strategy == "parameter_server" && num_workers > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(flag,
                     " needs parameter servers, and this run has none: the cluster spec needs to have `ps` jobs; "
                     "add \"ps\": [\"host:port\"] to the cluster of TF_CONFIG and start a process for it, or use "
                     "--distribution_strategy=default"));
  }
  if (distribution_strategy == "tpu") {
    return absl::InvalidArgumentError(absl::StrCat(flag, " is not for this run, which trains on ", num_replicas, " ",
                                                   devices, "; use --distribution_strategy=default"));
  }
  if (num_workers > 1) {
    if (distribution_strategy == "default") return "multi_worker_mirrored";
    return absl::InvalidArgumentError(absl::StrCat(flag, " is for one process, and this run has ", num_workers,
                                                   " workers; use --distribution_strategy=multi_worker_mirrored"));
  }
  if (distribution_strategy == "mirrored") return "mirrored";
  // TensorFlow's ParameterServerStrategy without a cluster is what was later named CentralStorageStrategy.
  if (distribution_strategy == "central_storage" || distribution_strategy == "parameter_server") {
    return "central_storage";
  }
  if (num_replicas <= 1) return "one_device";
  if (distribution_strategy == "default") return "mirrored";
  return absl::InvalidArgumentError(absl::StrCat(flag, " is for one device, and this run has ", num_replicas, " ",
                                                 devices, "; use --distribution_strategy=mirrored, or one device"));
}

}  // namespace official::misc
