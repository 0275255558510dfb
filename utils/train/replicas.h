// A model on the devices of a strategy: its variables, which are copied to each device or, where all compute in the
// same memory, shared; and its programs by the size of the batch.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "utils/compute/core/batch_parts.h"
#include "utils/compute/program/program.h"
#include "utils/data/batch.h"
#include "utils/distribute/strategy.h"
#include "utils/train/model.h"
#include "utils/train/program_builder.h"

namespace official::train {

// The programs that together work on batches of one kind.
struct ReplicatedProgram {
  struct Replica {
    std::shared_ptr<const BuiltModel> model;
    std::unique_ptr<compute::Program> program;  // null: no share in the batch, and nothing to do without one
    BatchShare share;                           // of the batch that the program was last asked for
  };
  std::vector<Replica> replicas;
  float turn_weight = 1;  // of a turn: its part of the whole batch's weight

  int64_t last_asked = 0;

  // Of the first replica, which always has a program.
  const BuiltModel& model() const { return *replicas[0].model; }
  // The mean over the examples of fetch i of the last run, a float32 scalar that is a mean over each replica's. Of an
  // update, which has it on each replica, that over the examples of all turns.
  absl::StatusOr<double> MeanFetch(int i) const;
  // Of an evaluation with host metrics: what each device with a share of the batch has fetched.
  absl::StatusOr<std::vector<ShareResults>> FetchPredictions() const;
  // A replica's part of the weight of the batch, or of the turn, in [0, 1]: what its mean counts in the batch's.
  // Divided by its own weight, the number of its examples, as the gradient of its mean does, it is 1 / the batch's as a
  // float, if there is such a number: each example then has the weight in the gradients that one device gives it.
  float Weight(const Replica& replica) const;
};

// Appends the features, then the labels of a share.
void AppendTensors(const BatchShare& share, std::vector<compute::Tensor>& feeds);

class Replicas {
 public:
  // Called with every new graph before it is compiled, to make its variables.
  using PrepareFn = std::function<absl::Status(const compute::Graph& graph)>;

  // Steps of training have `turns`. `choices`: see compute::CompileOptions; must outlive this.
  Replicas(const Model& model, compute::DType dtype, const compute::LossScale& loss_scale, int turns,
           distribute::Strategy& strategy, compute::AlgorithmChoices* choices);

  distribute::Strategy& strategy() const { return strategy_; }

  // The programs of a mode for batches such as this, with its shares; built and compiled when there are none yet, in
  // the place of the ones unused for longest if there are very many. `spec` names the tensors. Where steps of training
  // have several turns, those of the given turn, from 0, or without one those that update.
  absl::StatusOr<ReplicatedProgram*> ProgramFor(Mode mode, const data::ElementSpec& spec, const data::Batch& batch,
                                                const PrepareFn& prepare, std::optional<int> turn = {});

  // Makes the variables of `graph` that are new, with the same initial values everywhere.
  absl::Status CreateVariables(const compute::Graph& graph, uint64_t seed);
  // Brings variables up to date with which training is behind: to be called before others than it read them.
  absl::Status Settle();
  bool HasVariable(absl::string_view name) const { return stores_[0]->Has(name); }
  std::vector<compute::VariableSpec> variables() const { return stores_[0]->specs(); }
  // Of one replica; the first stands for all.
  absl::StatusOr<compute::Tensor> Read(absl::string_view name, int replica = 0) const {
    return stores_[replica]->Read(name);
  }
  // To all replicas.
  absl::Status Write(absl::string_view name, const compute::Tensor& value);

  // Total divided by count, both summed over the replicas; NaN where nothing was counted.
  absl::StatusOr<double> MetricValue(const BuiltModel::Metric& metric) const;
  // Sets all sums to 0.
  absl::Status ResetSums();

  // Internal, naming the first variable and two replicas, if a variable that must be the same on all replicas is not.
  absl::Status CheckEqual();

 private:
  // What decides a program: numbers that stand for a mode, a part of a step and the types of shares.
  using Key = std::vector<int64_t>;

  absl::StatusOr<std::shared_ptr<const BuiltModel>> BuiltFor(Mode mode, StepPart part, const data::ElementSpec& spec,
                                                             const BatchShare& share, const PrepareFn& prepare);
  absl::StatusOr<ReplicatedProgram> Compile(Mode mode, StepPart part, const data::ElementSpec& spec,
                                            const PrepareFn& prepare);

  const Model& model_;
  const ShareFn share_;
  const compute::DType dtype_;
  const compute::LossScale loss_scale_;
  const int turns_;
  distribute::Strategy& strategy_;
  compute::AlgorithmChoices* const choices_;
  std::vector<std::unique_ptr<compute::VariableStore>> stores_;  // by replica
  std::vector<std::unique_ptr<compute::Arena>> arenas_;          // by replica
  std::map<Key, std::weak_ptr<const BuiltModel>> models_;        // for one replica, by mode and share
  std::map<Key, ReplicatedProgram> programs_;                    // by mode and all shares
  std::unique_ptr<compute::Program> settle_;                     // of one replica; several are never behind
  int64_t asked_ = 0;                                            // times that ProgramFor was called
  // Of the batch that is asked for: here so that a step allocates nothing.
  std::vector<BatchShare> shares_;
  Key key_;
};

}  // namespace official::train
