// CheckpointedModel: a model on the devices of a strategy, whose variables and state come from the checkpoints of one
// model_dir and go to them.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "utils/distribute/strategy.h"
#include "utils/train/config.h"
#include "utils/train/model.h"
#include "utils/train/model_dir.h"
#include "utils/train/replicas.h"
#include "utils/train/run_state.h"
#include "utils/train/warm_start.h"

namespace official::train {

class CheckpointedModel {
 public:
  // Opens config.model_dir and restores the state from its latest checkpoint, if there is one. Errors: see
  // Estimator::Create.
  static absl::StatusOr<std::unique_ptr<CheckpointedModel>> Open(Model model, EstimatorConfig config,
                                                                 std::unique_ptr<distribute::Strategy> strategy);

  const Model& model() const { return model_; }
  const EstimatorConfig& config() const { return config_; }
  distribute::Strategy& strategy() { return *strategy_; }
  Replicas& replicas() { return replicas_; }
  ModelDir& dir() { return *dir_; }
  RunState& state() { return state_; }

  // The origin of the variables: "fresh" or "resumed from model.ckpt-600".
  const std::string& origin() const { return origin_; }
  // The step of the checkpoint that the run began with.
  std::optional<int64_t> restored_step() const { return restored_step_; }
  // The step of the newest checkpoint, which may still be being written.
  std::optional<int64_t> saved_step() const { return saved_step_; }
  // Returns one of the facts by name; there must be one of this name.
  const RunFact& fact(absl::string_view name) const;
  // True if a step is to be abandoned: see EstimatorConfig::stop.
  bool StopIsWanted() const { return config_.stop != nullptr && *config_.stop != 0; }

  // Returns the programs of Replicas::ProgramFor, their variables restored.
  absl::StatusOr<ReplicatedProgram*> ProgramFor(Mode mode, const data::ElementSpec& spec, const data::Batch& batch,
                                                std::optional<int> micro_batch = {});
  // Makes the variables of a graph that was built elsewhere ready to be read, and checks them. NotFound if nothing was
  // trained, DataLoss or Internal as CheckFinite.
  absl::Status LoadVariables(const compute::Graph& graph);
  // Returns the error for the first variable of `graph`, except sums, that is not finite: DataLoss if the checkpoint
  // that the run began with has that value, else Internal. OK if there is none.
  absl::Status CheckFinite(const compute::Graph& graph);

  // Starts to write a checkpoint of the present step, if there is none yet.
  absl::Status Save();
  // Logs that the save for Interruption::kSave is done.
  void LogSavedOnRequest() const;

 private:
  CheckpointedModel(Model model, EstimatorConfig config, std::unique_ptr<distribute::Strategy> strategy);
  absl::Status Restore();
  // Returns NotFound if nothing was trained.
  absl::Status CheckTrained() const;
  // Takes the variables of `graph` that are new from the checkpoint, or gives them their initial values.
  absl::Status PrepareVariables(const compute::Graph& graph);
  // Returns the error for a checkpoint that does not have all of the variables `added`.
  absl::Status CheckIsOfThisModel(const std::vector<compute::VariableSpec>& added) const;

  const Model model_;
  EstimatorConfig config_;
  std::unique_ptr<distribute::Strategy> strategy_;
  compute::AlgorithmChoices algorithm_choices_;
  Replicas replicas_;
  std::unique_ptr<ModelDir> dir_;
  std::unique_ptr<BundleReader> restored_;  // open while there may be variables to take from it
  std::unique_ptr<WarmStart> warm_start_;   // for a new run with EstimatorConfig::warm_start
  std::string origin_ = "fresh";
  RunState state_;
  std::optional<int64_t> saved_step_, restored_step_;
};

}  // namespace official::train
