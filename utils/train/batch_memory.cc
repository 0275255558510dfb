#include "utils/train/batch_memory.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/misc/available_memory.h"

namespace official::train {
namespace {

std::string Gigabytes(double bytes) { return absl::StrCat(std::round(bytes / 1e8) / 10, " GB"); }

}  // namespace

absl::Status CheckBatchFits(CheckpointedModel& checkpointed, const data::ElementSpec& spec, int64_t batch_size) {
  const Model& model = checkpointed.model();
  const EstimatorConfig& config = checkpointed.config();
  distribute::Strategy& strategy = checkpointed.strategy();
  // Below this the answer is always yes, and the question costs start-up time.
  constexpr int64_t kSmall = 4096;
  const int64_t available = misc::AvailableMemory();
  // Nor is there an answer where a share of a batch is not rows of it.
  if (batch_size <= kSmall || available < 0 || model.share) return absl::OkStatus();
  // The arena of a program grows with the batch; two small programs tell by how much. Variables do not. A device with
  // memory of its own says itself when that is too small.
  int64_t bytes[2] = {0, 0};
  const int64_t sizes[2] = {16, 32};
  for (int i = 0; i < 2 && strategy.device(0).uses_host_memory(); ++i) {
    ASSIGN_OR_RETURN(const BuiltModel built,
                     BuildModel(model, Mode::kTrain, config.dtype, config.loss_scale, Batched(spec, sizes[i]),
                                /*has_examples=*/true, /*num_replicas=*/1));
    compute::VariableStore scratch(strategy.device(0));
    RETURN_IF_ERROR(scratch.Create(*built.graph, 0));
    ASSIGN_OR_RETURN(const auto program,
                     compute::Program::Compile(*built.graph, built.roots, strategy.device(0), scratch));
    bytes[i] = program->arena_bytes();
  }
  double input_bytes = 0;
  for (const auto* leaves : {&spec.features, &spec.labels}) {
    for (const data::Leaf& leaf : *leaves) input_bytes += static_cast<double>(leaf.type.num_bytes());
  }
  // The input pipeline holds a few batches: one in use, the others read ahead.
  const double computed = static_cast<double>(bytes[1] - bytes[0]) / (sizes[1] - sizes[0]);
  const double per_example = computed / checkpointed.replicas().micro_batches() + 4 * input_bytes;
  const double fixed = static_cast<double>(bytes[0]) - sizes[0] * computed;
  const double needed = fixed + per_example * static_cast<double>(batch_size);
  if (needed < 0.9 * static_cast<double>(available)) return absl::OkStatus();
  const int64_t multiple = strategy.num_replicas_in_sync();
  const auto fits =
      std::max<int64_t>(multiple, static_cast<int64_t>((0.9 * static_cast<double>(available) - fixed) / per_example) /
                                      multiple * multiple);
  return absl::InvalidArgumentError(absl::StrCat("--batch_size=", batch_size, " needs about ", Gigabytes(needed),
                                                 " of memory and ", Gigabytes(static_cast<double>(available)),
                                                 " are free; at most --batch_size=", fits, " would fit"));
}

absl::StatusOr<MemoryPlan> PlanMemory(CheckpointedModel& checkpointed, const data::ElementSpec& spec,
                                      const data::Batch& batch) {
  Replicas& replicas = checkpointed.replicas();
  // Of a step in several programs the first has the batch.
  const std::optional<int> micro_batch = replicas.updates_apart() ? std::optional<int>(0) : std::nullopt;
  ASSIGN_OR_RETURN(const ReplicatedProgram* const program,
                   checkpointed.ProgramFor(Mode::kTrain, spec, batch, micro_batch));
  MemoryPlan plan{.num_replicas = checkpointed.strategy().num_local_replicas(),
                  .available_bytes = misc::AvailableMemory()};
  for (const compute::VariableSpec& variable : replicas.variables()) {
    const int64_t bytes = variable.type.num_bytes();
    (variable.trainable ? plan.parameter_bytes : plan.other_variable_bytes) += bytes;
    if (!variable.trainable) continue;
    ++plan.num_variables;
    plan.num_parameters += variable.type.shape.num_elements();
  }
  for (const ReplicatedProgram::Replica& replica : program->replicas) {
    if (replica.program == nullptr) continue;
    plan.intermediate_bytes = std::max(plan.intermediate_bytes, replica.program->arena_bytes());
  }
  for (const data::Tensors* tensors : {&batch.features, &batch.labels}) {
    for (const compute::Tensor& tensor : *tensors) plan.batch_bytes += tensor.num_bytes();
  }
  return plan;
}

}  // namespace official::train
