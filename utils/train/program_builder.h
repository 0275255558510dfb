// Turns a model into the programs of the three modes.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "utils/compute/core/loss_scale.h"
#include "utils/compute/program/program.h"
#include "utils/data/dataset.h"
#include "utils/train/model.h"

namespace official::train {

// The variable that counts steps, and the names of those that sum metrics over steps or gradients over the turns of a
// step. Sums are each device's own and not saved.
inline constexpr char kGlobalStep[] = "global_step";
inline constexpr char kLocalPrefix[] = "_local/";
// Those of a dynamic loss scale.
inline constexpr char kLossScale[] = "_run/loss_scale";
inline constexpr char kGoodSteps[] = "_run/good_steps";

// What a training program does of a step. With gradient accumulation a step has turns, each for a part of the batch:
// their programs sum what they compute, and one for the update takes the sums.
enum class StepPart { kWhole, kTurn, kUpdate };

// A mode of a model for the examples of one replica, built but not compiled.
struct BuiltModel {
  std::unique_ptr<compute::Graph> graph;
  // Feeds: if has_examples or stands_in the features, for training and evaluation the labels, for training the random
  // state; then for training with several replicas the replica's weight, and for a turn the turn's. Last, for training,
  // the learning rate or, for a turn, a bool scalar: whether the step has had a turn before it.
  compute::GraphRoots roots;
  StepPart part = StepPart::kWhole;
  // Names of the fetches. Train: "loss" and the logged values, of which a turn has none and the update those of the
  // whole step; evaluation: "loss" and, with host metrics, the predictions; prediction: the predictions.
  std::vector<std::string> fetch_names;
  std::vector<std::string> fetch_tags;  // in event files
  // With a dynamic loss scale one more fetch, a bool scalar: whether the step updated the variables.
  std::optional<int> updated_fetch;
  struct Metric {
    std::string name, summary_tag;
    std::string total, count;  // float32 scalar variables: sums of this replica
  };
  std::vector<Metric> metrics;
  // False for a replica without a share in the batch: it adds zeros to the gradients and updates its variables with the
  // sums of the others.
  bool has_examples = true;
  // Without a share, but the model synchronizes: the program is fed as one for a single example. Training only.
  bool stands_in = false;
  // Brings variables up to date with which training is behind (deferred_adam.h); nullptr if it never is.
  compute::Node* settle = nullptr;
};

// With several replicas the gradients are those of the mean loss over the global batch: each replica's are multiplied
// by its weight, its share of the examples, and summed over all of them, in `num_replicas` packs. For 1, 2 and 4
// replicas the sums over the batch are made of the same parts (core/batch_parts.h).
// What a turn computes is multiplied by its weight too, its part of the batch, and summed over the turns before it is
// over the replicas. An update has no examples, and its graph what that of a turn has, so that it knows the sums.
// `types` are the names and types of what a BatchShare holds. Without examples, for several replicas only, they are
// those of one example; what is built for an evaluation then has nothing to compute.
absl::StatusOr<BuiltModel> BuildModel(const Model& model, Mode mode, compute::DType dtype,
                                      const compute::LossScale& loss_scale, const data::ElementSpec& types,
                                      bool has_examples, int num_replicas, StepPart part = StepPart::kWhole,
                                      absl::string_view device_kind = "cpu");

// `spec` with a dimension for `batch_size` examples in front of each type.
data::ElementSpec Batched(data::ElementSpec spec, int64_t batch_size);

}  // namespace official::train
