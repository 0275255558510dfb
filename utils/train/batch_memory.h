// The memory that a batch takes, before it is taken.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "utils/train/checkpointed_model.h"

namespace official::train {

// The batches of the largest shape that a training has, of made-up examples.
struct LargestBatches {
  int64_t num_examples = 1;  // in each
  // Returns a source of one batch of this shape with another number of examples.
  std::function<absl::StatusOr<data::BatchSourcePtr>(int64_t num_examples)> make;

  absl::StatusOr<data::BatchSourcePtr> Make() const { return make(num_examples); }
};

// Returns InvalidArgument, with the largest batch that would fit, if training with `batch_size` needs more memory than
// the host has: variables, the intermediate values of all replicas of this process, and batches that are read ahead.
// Allocates nothing of that size. `largest` is for models whose batches have several shapes; without it batches have
// `batch_size` examples of `spec`, and a model with Model::share is not checked.
absl::Status CheckBatchFits(CheckpointedModel& checkpointed, const data::ElementSpec& spec, int64_t batch_size,
                            const std::optional<LargestBatches>& largest);

struct MemoryPlan {
  int64_t num_variables = 0;         // trainable ones
  int64_t num_parameters = 0;        // their elements
  int64_t parameter_bytes = 0;       // of one copy
  int64_t other_variable_bytes = 0;  // the optimizer's, moving averages, sums
  int64_t intermediate_bytes = 0;    // what a training step computes, on one replica
  int num_replicas = 1;              // of this process
  int64_t batch_bytes = 0;
  // Of the host: what the replicas have there, one more copy of the variables from which a checkpoint is written, and
  // the batches that are read ahead.
  int64_t host_bytes = 0;
  int64_t available_bytes = -1;  // of the host (utils/misc/available_memory.h); -1 if it is not known
};

// Returns the memory that a training step on `batch` takes, by the plan of its program, which this compiles.
absl::StatusOr<MemoryPlan> PlanMemory(CheckpointedModel& checkpointed, const data::ElementSpec& spec,
                                      const data::Batch& batch);

}  // namespace official::train
