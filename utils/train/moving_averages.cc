#include "utils/train/moving_averages.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "utils/compute/core/status.h"
#include "utils/logs/log.h"
#include "utils/train/step.h"

namespace official::train {

using compute::Tensor;

absl::Status MovingAverages::Use(bool averages) {
  if (!kept() || std::exchange(used_, averages) == averages) return absl::OkStatus();
  return Swap(replicas_.variables());
}

absl::Status MovingAverages::Create(const compute::Graph& graph, uint64_t seed,
                                    std::vector<compute::VariableSpec>& added) {
  if (!kept()) return absl::OkStatus();
  compute::Graph averages;
  for (const compute::VariableSpec& spec : graph.variables()) {
    if (!spec.trainable || replicas_.HasVariable(AverageOf(spec).name)) continue;
    averages.Variable(AverageOf(spec));
    added.push_back(AverageOf(spec));
  }
  return replicas_.CreateVariables(averages, seed);
}

absl::Status MovingAverages::Begin(const std::vector<compute::VariableSpec>& added, const BundleReader* checkpoint) {
  if (!kept()) return absl::OkStatus();
  for (const compute::VariableSpec& spec : added) {
    const std::string average = AverageOf(spec).name;
    if (!spec.trainable || (checkpoint != nullptr && checkpoint->Find(average))) continue;
    ASSIGN_OR_RETURN(const Tensor value, replicas_.Read(spec.name));
    RETURN_IF_ERROR(replicas_.Write(average, value));
  }
  return absl::OkStatus();
}

absl::Status MovingAverages::Swap(const std::vector<compute::VariableSpec>& variables) {
  for (const compute::VariableSpec& spec : variables) {
    if (!spec.trainable) continue;
    const std::string average = AverageOf(spec).name;
    ASSIGN_OR_RETURN(const Tensor value, replicas_.Read(spec.name));
    ASSIGN_OR_RETURN(const Tensor averaged, replicas_.Read(average));
    RETURN_IF_ERROR(replicas_.Write(spec.name, averaged));
    RETURN_IF_ERROR(replicas_.Write(average, value));
  }
  return absl::OkStatus();
}

std::string MovingAverages::StoredName(const compute::VariableSpec& spec, const BundleReader& checkpoint) const {
  if (config_.trains || !spec.trainable) return spec.name;
  const std::string average = AverageOf(spec).name;
  return checkpoint.Find(average) ? average : spec.name;
}

void MovingAverages::Log(const BundleReader& checkpoint) {
  const std::vector<StoredTensor> tensors = checkpoint.ListTensors();
  const bool has_averages = std::any_of(tensors.begin(), tensors.end(), [](const StoredTensor& tensor) {
    return absl::EndsWith(tensor.name, kAverageSuffix);
  });
  if (has_averages == kept() || std::exchange(logged_, true)) return;
  if (!has_averages) {
    LOG(INFO)
        << "the checkpoint has no moving averages of the variables: with --ema_decay they begin with the variables";
  } else if (config_.trains) {
    LOG(INFO) << "the moving averages of the variables in the checkpoint are not used without --ema_decay, and not in "
              << "the next checkpoints";
  } else {
    LOG(INFO) << "uses the moving averages of the variables";
  }
}

}  // namespace official::train
