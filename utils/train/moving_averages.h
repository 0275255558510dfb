// MovingAverages: the moving averages of the trainable variables, which are variables themselves
// (TrainOptions::ema_decay). Each training step updates them; evaluations and exports use their values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "utils/train/checkpoint/checkpoint_dir.h"
#include "utils/train/config.h"
#include "utils/train/replicas.h"

namespace official::train {

class MovingAverages {
 public:
  // Both must outlive this.
  MovingAverages(const EstimatorConfig& config, Replicas& replicas) : config_(config), replicas_(replicas) {}

  // True if the training also has the moving average of each trainable variable.
  bool kept() const { return config_.ema_decay && config_.trains; }
  // True if the variables have the values of their averages.
  bool used() const { return used_; }
  // If averages are kept, gives the variables the values of their averages, for an evaluation or an export, or with
  // false those that are trained.
  absl::Status Use(bool averages);

  // If averages are kept, creates those that the replicas do not have of the trainable variables of `graph`, and
  // appends them to `added`.
  absl::Status Create(const compute::Graph& graph, uint64_t seed, std::vector<compute::VariableSpec>& added);
  // If averages are kept, gives those of the variables `added` that the checkpoint, if there is one, does not have the
  // values of the variables.
  absl::Status Begin(const std::vector<compute::VariableSpec>& added, const BundleReader* checkpoint);
  // Exchanges the values of the trainable variables among these and their averages.
  absl::Status Swap(const std::vector<compute::VariableSpec>& variables);

  // Returns the name of the tensor in the checkpoint that a variable gets its value from: without training, that of its
  // average if there is one.
  std::string StoredName(const compute::VariableSpec& spec, const BundleReader& checkpoint) const;
  // Logs, once, what becomes of averages that the checkpoint has and the training does not keep, or the other way
  // round.
  void Log(const BundleReader& checkpoint);

 private:
  const EstimatorConfig& config_;
  Replicas& replicas_;
  bool used_ = false;
  bool logged_ = false;
};

}  // namespace official::train
