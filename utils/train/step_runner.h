// StepRunner: computes training steps on all replicas, and finds out why one failed.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "utils/train/checkpointed_model.h"

namespace official::train {

class StepRunner {
 public:
  explicit StepRunner(CheckpointedModel& model);

  // Computes the step that follows state().global_step on a batch, whose update `program` makes; with `timings`, also
  // the times of the kernels of replica 0. A device with memory of its own may still be computing when this returns.
  // Cancelled, with no variable but sums changed, if a stop is wanted before the update.
  absl::Status Run(const data::ElementSpec& spec, const data::Batch& batch, ReplicatedProgram& program,
                   float learning_rate, std::vector<compute::KernelTiming>* timings);

  // Returns the error of a step that failed because a number is not finite (OutOfRange `error`), naming the first
  // tensor with such a number and what to try; sets state().global_step to the last good step. Other errors are
  // returned unchanged.
  absl::Status Explain(const absl::Status& error);

 private:
  struct ReplicaFeeds {
    compute::Tensor random_state{compute::DType::kInt64, {3}};
    compute::Tensor learning_rate{compute::DType::kFloat32, {}};
    compute::Tensor weight{compute::DType::kFloat32, {}};
    compute::Tensor micro_batch_weight{compute::DType::kFloat32, {}};
    compute::Tensor add{compute::DType::kBool, {}};
    std::vector<compute::Tensor> tensors;
  };
  struct RunFeeds {
    ReplicatedProgram* program = nullptr;
    std::vector<ReplicaFeeds> replicas;
  };
  // The inputs of a step, kept to compute it again.
  struct StepFeeds {
    int64_t number = 0;  // the global step that it ends with
    data::Batch batch;   // the tensors are views of it
    size_t num_runs = 0;
    std::vector<RunFeeds> runs;  // micro-batches, if there are several, and last the update; num_runs have begun
  };

  StepFeeds& FeedsOf(int64_t step) { return recent_[step % static_cast<int64_t>(recent_.size())]; }
  // Sets what replica `r` feeds to run `number` of a step.
  void SetFeeds(RunFeeds& run, size_t number, int r, float learning_rate);
  // Computes a step again on the replicas whose variables count `good_steps`; OutOfRange names the first tensor.
  absl::Status RunAgain(const StepFeeds& step, const std::vector<int64_t>& good_steps);
  std::string LastCheckpoint() const;  // which it is; empty where this process does not know
  std::string Advice() const;          // for numbers that are not finite

  CheckpointedModel& model_;
  // Of the workers of a job with parameter servers, each draws other random numbers: as if the batches of those before
  // it were in front of its own.
  int64_t examples_before_ = 0;
  std::vector<StepFeeds> recent_;  // steps whose errors may not be known yet, by the remainder of the step
};

}  // namespace official::train
