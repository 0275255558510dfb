// Turns --num_gpus and --batch_size into devices and their share, as official/utils/misc/distribution_utils.py does,
// with checks against the machine, beyond upstream, so that a run that cannot work ends here, before any work.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "utils/misc/gpu_count.h"

namespace official::misc {

// Returns the number of GPUs to train on, 0 for the CPU. `num_gpus` is the flag: unset means one GPU if there is one,
// -1 all that there are, else that many. `count_gpus` is called only if the result depends on it. InvalidArgument if
// more GPUs are asked for than there are.
absl::StatusOr<int> GetNumGpus(std::optional<int> num_gpus, const std::function<VisibleGpus()>& count_gpus);

// The devices that --devices names: all GPUs or all logical CPU devices.
struct NamedDevices {
  bool are_gpus = false;
  std::vector<int> indices;
};

// Returns the devices of a list such as "gpu:0,gpu:2", also in TensorFlow's spelling "/gpu:0,/device:GPU:2".
// InvalidArgument, with the item, if it is no list of different devices of one kind.
absl::StatusOr<NamedDevices> ParseDevices(absl::string_view devices);

// True if --num_gpus or, if it is given, --devices asks for more than one GPU, which need not be there. `count_gpus` is
// called for -1 only.
bool AskForSeveralGpus(std::optional<int> num_gpus, const std::optional<std::string>& devices,
                       const std::function<VisibleGpus()>& count_gpus);

// Returns the share of one replica in a global batch. InvalidArgument, with the nearest valid sizes, of at least
// `least`, if `batch_size` is not a multiple of `num_devices`. No GPU and one GPU both mean one replica. `devices` is
// their name in the message.
absl::StatusOr<int> PerDeviceBatchSize(int batch_size, int num_devices, absl::string_view devices = "GPUs",
                                       int least = 1);

// Returns TensorFlow's name of the strategy that --distribution_strategy asks for with so many workers and, of all of
// them, replicas: "one_device", "mirrored", "central_storage" or "multi_worker_mirrored". InvalidArgument if it is for
// one device, or one worker, only and there are several, or if it needs parameter servers or a TPU. `devices` is what
// the message calls the replicas.
absl::StatusOr<std::string> StrategyName(absl::string_view distribution_strategy, int num_workers, int num_replicas,
                                         absl::string_view devices = "GPUs");

}  // namespace official::misc
