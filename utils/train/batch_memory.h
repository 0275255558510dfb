// The memory that a batch takes, before it is taken.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "utils/misc/available_memory.h"
#include "utils/train/checkpointed_model.h"

namespace official::train {

// The batches of the largest shape that a training has, of made-up examples.
struct LargestBatches {
  int64_t num_examples = 1;  // in each
  // Returns a source of one batch of this shape with another number of examples.
  std::function<absl::StatusOr<data::BatchSourcePtr>(int64_t num_examples)> make;

  absl::StatusOr<data::BatchSourcePtr> Make() const { return make(num_examples); }
};

struct TrainingBatches {
  data::ElementSpec spec;  // of an example
  int64_t batch_size = 1;  // as the flag counts
  // For models whose batches have several shapes. Without it batches have `batch_size` examples of `spec`, and a model
  // with Model::share is not checked.
  std::optional<LargestBatches> largest = std::nullopt;
  int64_t num_kept = 0;  // of them that stay in memory, by --overfit_batches
};

// The share of the free memory of the host that a training may take by its plan: with a --batch_size that is given, and
// with one that --batch_size=auto chooses, which leaves more to other processes.
constexpr double kUsableShare = 0.9, kChosenShare = 0.8;

// Returns InvalidArgument, with the largest batch that would fit and the largest values, if a training needs more
// memory than `free_bytes`, that of the host: variables, the intermediate values of all replicas of this process, and
// batches that are read ahead or kept. Allocates nothing of that size. -1 free bytes are not known, and nothing is
// checked.
absl::Status CheckBatchFits(CheckpointedModel& checkpointed, const TrainingBatches& batches,
                            int64_t free_bytes = misc::AvailableMemory());

struct TrainingMemory {
  int64_t num_variables = 0;    // trainable ones
  int64_t num_parameters = 0;   // their elements
  int64_t parameter_bytes = 0;  // of one copy
  // The optimizer's, moving averages, sums; of sums all that the replicas of this process have in host memory.
  int64_t other_variable_bytes = 0;
  // The values that a training step computes on one replica; nothing where only the device's own plan has them.
  std::optional<int64_t> intermediate_bytes = {};
  int num_replicas = 1;  // of this process
  int64_t batch_bytes = 0;
  // Bytes of the host: what the replicas have there, one more copy of all variables but sums from which a checkpoint is
  // written, and the batches that are read ahead.
  int64_t host_bytes = 0;
  int64_t available_bytes = -1;  // of the host (utils/misc/available_memory.h); -1 if it is not known
};

// Returns the memory that a training step on `batch` takes, by the plans of its programs, which this compiles.
absl::StatusOr<TrainingMemory> MemoryOfTraining(CheckpointedModel& checkpointed, const data::ElementSpec& spec,
                                                const data::Batch& batch);

}  // namespace official::train
