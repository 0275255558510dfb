// CheckpointedModel: a model on the devices of a strategy, whose variables and state come from the checkpoints of one
// model_dir and go to them. With several workers the directory is the chief's alone, which sends the others what was in
// it; all of them call the same functions in the same order.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "utils/distribute/strategy.h"
#include "utils/train/config.h"
#include "utils/train/model.h"
#include "utils/train/model_dir.h"
#include "utils/train/moving_averages.h"
#include "utils/train/replicas.h"
#include "utils/train/run_state.h"
#include "utils/train/server_client.h"
#include "utils/train/warm_start.h"
#include "utils/train/worker_agreement.h"

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
  MovingAverages& averages() { return averages_; }
  WorkerAgreement& agreement() { return agreement_; }
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
  // Returns the flag by which programs see that a step is to be abandoned, EstimatorConfig::stop. Null with several
  // workers: they stop between steps only, all of them after the same one.
  const std::atomic<int>* stop() const { return strategy_->has_other_workers() ? nullptr : config_.stop; }
  bool StopIsWanted() const { return stop() != nullptr && *stop() != 0; }

  // Replaces the state and all variables by those of the latest checkpoint, which another process has written since.
  // Not with other workers.
  absl::Status Reload();
  // Returns the programs of Replicas::ProgramFor, their variables restored.
  absl::StatusOr<ReplicatedProgram*> ProgramFor(Mode mode, const data::ElementSpec& spec, const data::Batch& batch,
                                                std::optional<int> micro_batch = {});
  // Makes the variables of a graph that was built elsewhere ready to be read, and checks them. NotFound if nothing was
  // trained, DataLoss or Internal as CheckFinite.
  absl::Status LoadVariables(const compute::Graph& graph);
  // Returns the error for the first variable of `graph`, except sums, that is not finite: DataLoss if the checkpoint
  // that the run began with has that value, else Internal. OK if there is none.
  absl::Status CheckFinite(const compute::Graph& graph);

  // In a job with parameter servers, before the first step: the chief gives them its variables, and all workers take
  // theirs. `spec` is that of the examples. Without servers this and the next function do nothing.
  absl::Status ConnectServers(const data::ElementSpec& spec);
  bool has_servers() const { return servers_ != nullptr; }
  // The number of gradients that the servers have dropped; 0 without servers.
  int64_t num_dropped_gradients() const { return servers_ == nullptr ? 0 : servers_->num_dropped(); }
  // Takes the present variables and global step from the servers; of tables that are read by rows those that the step
  // on `batch` reads.
  absl::Status ReadVariables(const data::ElementSpec& spec, const data::Batch& batch);
  // Takes the global step and what is not read by rows.
  absl::Status ReadGlobalStep();
  // Keeps the gradients of rows that a micro-batch has computed, for FinishStep. Does nothing without servers.
  absl::Status TakeGradients(const ReplicatedProgram& program);
  // Sets the feeds of a micro-batch that ReadVariables has found the rows of, among others, where a step has several.
  absl::Status FindRows(ReplicatedProgram& micro_batch);
  // Counts a step. With parameter servers these make the update, from the sums that the step has computed.
  absl::Status FinishStep(float learning_rate);
  // Waits, on the chief of a job with parameter servers, until the other workers have done their parts of the data or
  // are lost. Returns false if a stop is wanted meanwhile; DeadlineExceeded if none makes a step for the strategy's
  // timeout.
  absl::StatusOr<bool> WaitForOtherWorkers();
  // Declares that the data have ended for all workers: what is left of those that were lost is left out.
  void EndData();

  // Starts to write a checkpoint of the present step, if there is none yet, or one from which the data have gone on
  // without a step, or one that the storage failed, and this process writes the directory.
  absl::Status Save();
  // For Interruption::kSave: waits until the checkpoint of the present step is written, if this process writes it, and
  // logs that. OK if the next save tries again.
  absl::Status ReportSave();
  // Logs that the save for Interruption::kSave is done.
  void LogSavedOnRequest() const;

 private:
  CheckpointedModel(Model model, EstimatorConfig config, std::unique_ptr<distribute::Strategy> strategy);
  absl::Status Restore();
  // Reads the evaluated step. One after the step of the checkpoint was of checkpoints that are lost: the evaluations
  // from here on are made again.
  absl::Status RestoreEvaluatedStep();
  // True if this process is the one that trains in the directory.
  bool trains_in_dir() const { return config_.trains && dir_->writes(); }
  // Returns NotFound if nothing was trained.
  absl::Status CheckTrained() const;
  // Keeps the step and the positions of the checkpoint that was saved last.
  void MarkSaved();
  absl::StatusOr<bool> WaitForWorker(int worker);
  // Makes the checkpoint that is due, or asked for, while the chief of a job with parameter servers waits for others.
  absl::Status SaveWhileWaiting(int64_t global_step, bool is_asked);
  // Takes the variables of `graph` that are new from the checkpoint, or gives them their initial values. After an error
  // none of them exists.
  absl::Status PrepareVariables(const compute::Graph& graph);
  // Writes to the variables `added` what the checkpoint, or that of a warm start, has of them.
  absl::Status RestoreVariables(const std::vector<compute::VariableSpec>& added);
  // Takes the state, and then the saved ones of the variables `added`, from the chief.
  absl::Status ShareState();
  absl::Status ShareVariables(absl::Status restored, const std::vector<compute::VariableSpec>& added);
  // Returns the error for a checkpoint that does not have all of the variables `added`.
  absl::Status CheckIsOfThisModel(const std::vector<compute::VariableSpec>& added) const;

  const Model model_;
  EstimatorConfig config_;
  std::unique_ptr<distribute::Strategy> strategy_;
  compute::AlgorithmChoices algorithm_choices_;
  Replicas replicas_;
  MovingAverages averages_;
  WorkerAgreement agreement_;
  std::unique_ptr<ServerClient> servers_;  // from ConnectServers on
  std::unique_ptr<ModelDir> dir_;
  std::unique_ptr<BundleReader> restored_;  // open while there may be variables to take from it
  std::unique_ptr<WarmStart> warm_start_;   // for a new run with EstimatorConfig::warm_start
  std::string origin_ = "fresh";
  RunState state_;
  std::optional<int64_t> saved_step_, restored_step_;
  data::Position saved_position_;                // of the data, in the checkpoint of saved_step_
  std::vector<data::Position> saved_positions_;  // the workers' in that checkpoint
  std::chrono::steady_clock::time_point save_time_ = std::chrono::steady_clock::now();  // of the last Save
  bool data_have_ended_ = false;
  bool shares_variables_ = false;  // with other workers: variables do not begin with their initial values
};

}  // namespace official::train
