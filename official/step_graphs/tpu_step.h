// The training step of a model as a StableHLO module, which a TPU's compiler takes.
#pragma once

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "official/step_graphs/step_graphs.h"
#include "utils/compute/core/dtype.h"

namespace official::step_graphs {

// The text of the whole step for `batch` examples on each of `num_chips` chips, which sum their gradients. Its loss
// scale is DefaultLossScale.
absl::StatusOr<std::string> TpuStepModule(const TrainedModel& model, compute::DType dtype, int64_t batch,
                                          int num_chips = 1);

// OK if a step can have `num_chips` of the `all_chips` of a topology: one, or all. Else InvalidArgument, naming the
// flags of tools/tpu_compile.
absl::Status CheckChips(int num_chips, int all_chips, absl::string_view topology);

// The largest batch for which `fits` is true, found to an eighth of it, from a first guess on; 0 if not even 32 fit.
// A call of `fits` compiles.
absl::StatusOr<int64_t> LargestBatch(int64_t guess, absl::FunctionRef<absl::StatusOr<bool>(int64_t batch)> fits);

// The name of a model on a command line, without blanks: "resnet-50-v1".
std::string CommandLineName(const TrainedModel& model);

}  // namespace official::step_graphs
