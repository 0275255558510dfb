// From --num_gpus and --batch_size to devices and their share, as official/utils/misc/distribution_utils.py has it; the
// checks against the machine are ours: a run that cannot work ends here, before any work.
#pragma once

#include <functional>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "utils/misc/gpu_count.h"

namespace official::misc {

// The number of GPUs to train on, 0 for the CPU. `num_gpus` is the flag: unset means one GPU where there is one, -1 all
// that there are, else that many. `count_gpus` is called only if the answer depends on it.
// InvalidArgument if more GPUs are asked for than there are.
absl::StatusOr<int> GetNumGpus(std::optional<int> num_gpus, const std::function<VisibleGpus()>& count_gpus);

// The share of one replica in a global batch. InvalidArgument, with the nearest sizes that would do, if `batch_size`
// does not divide evenly by `num_devices`. No GPU and one GPU both mean one replica. `devices` is what the message
// calls them.
absl::StatusOr<int> PerDeviceBatchSize(int batch_size, int num_devices, absl::string_view devices = "GPUs");

}  // namespace official::misc
