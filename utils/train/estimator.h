// Estimator: trains, evaluates, predicts with and exports one model in one model_dir, as tf.estimator.Estimator does.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "utils/data/batch.h"
#include "utils/distribute/strategy.h"
#include "utils/logs/hook.h"
#include "utils/train/background_saver.h"
#include "utils/train/model.h"
#include "utils/train/replicas.h"
#include "utils/train/run_facts.h"
#include "utils/train/summary/event_writer.h"
#include "utils/train/warm_start.h"

namespace official::train {

// A request from outside (a signal) to a run, which asks for it after each training step, before each step of an
// evaluation, and every kAskInterval while either waits for data.
constexpr std::chrono::milliseconds kAskInterval(100);
enum class Interruption { kNone, kSave, kStop };

// The choice whether a run continues from a checkpoint in model_dir.
enum class Resume { kAuto, kNever, kMust };

struct EstimatorConfig {
  std::string model_dir;
  std::string dataset;         // "MNIST": a model_dir is for one data set; empty: not known
  std::vector<RunFact> facts;  // further facts, compared with the checkpoint and kept in the next ones
  uint64_t seed = 1;
  compute::DType dtype = compute::DType::kFloat32;
  compute::LossScale loss_scale = {};
  // The number of micro-batches of a training step, computed one after another before one update of the variables. The
  // step takes the memory of a micro-batch and has the results of the whole batch, except for rounding and what the
  // model itself computes over its batch.
  int grad_accum_steps = 1;
  std::optional<int64_t> save_checkpoints_steps;  // if set, save_checkpoints_secs does not count
  int save_checkpoints_secs = 600;
  int keep_checkpoint_max = 5;     // 0 keeps all
  int save_summary_steps = 100;    // steps between events and between losses in metric.log
  int check_replicas_steps = 100;  // steps between two comparisons of the replicas' variables
  // True: times the algorithms of kernels that have several in the first run in model_dir and keeps the choice in
  // algorithms.txt there. False: the choice does not depend on times.
  bool time_algorithms = false;
  std::string flags_text;       // shown by TensorBoard and kept in flags.txt
  bool write_model_dir = true;  // false: nothing is written (prediction, export)
  Resume resume = Resume::kAuto;
  // A checkpoint, or a directory with one, that a new run takes the model's variables from (warm_start.h).
  std::optional<std::string> warm_start = std::nullopt;
  std::string mismatch_hint = "";  // ends the error for a checkpoint of another model
  std::function<Interruption()> interruption = [] { return Interruption::kNone; };
  // Not 0 once interruption() returns kStop: a step or a batch is then abandoned between two kernels where that loses
  // nothing.
  const std::atomic<int>* stop = nullptr;
};

// Opens a data set from `start` on, for one call of Estimator::Train or Evaluate.
using InputFn = std::function<absl::StatusOr<data::BatchSourcePtr>(data::Position start)>;

// The name and value of each metric, sorted by name, including loss and global_step.
using EvalResults = std::vector<std::pair<std::string, double>>;

class Estimator {
 public:
  // Opens model_dir and finds its latest checkpoint. A caller that writes there holds its RunLock. Errors: the
  // directory cannot be made or written (FailedPrecondition, PermissionDenied), it holds a run on another data set
  // (InvalidArgument), the checkpoint is damaged (DataLoss), there is one with Resume::kNever (FailedPrecondition), or
  // none with Resume::kMust (NotFound).
  static absl::StatusOr<std::unique_ptr<Estimator>> Create(Model model, EstimatorConfig config,
                                                           std::unique_ptr<distribute::Strategy> strategy);
  ~Estimator();

  // Logs which of config's flags differ from those of the last training in model_dir, if any do.
  void LogChangedFlags() const;

  // The number of updates done so far, and the position at which the data continues.
  int64_t global_step() const { return global_step_; }
  data::Position position() const { return position_; }
  // Sets the position at which the next Train begins.
  void ContinueAt(data::Position position) { position_ = position; }
  // The step at which the last finished evaluation was made, by this run or one before it in model_dir.
  std::optional<int64_t> evaluated_step() const { return evaluated_step_; }
  // Records in model_dir that the evaluation at global_step(), with all that belongs to it, is finished.
  absl::Status KeepEvaluatedStep();
  // Returns one of the facts by name; there must be one of this name.
  const RunFact& fact(absl::string_view name) const;
  // The seed of this run: the checkpoint's if there is one.
  uint64_t seed() const { return config_.seed; }
  // The origin of the variables: "fresh" or "resumed from model.ckpt-600".
  const std::string& origin() const { return origin_; }
  const distribute::Strategy& strategy() const { return *strategy_; }

  // Returns InvalidArgument, with the largest batch that would fit, if training with `batch_size` needs more memory
  // than the host has. Allocates nothing of that size.
  absl::Status CheckBatchFits(const data::ElementSpec& spec, int64_t batch_size);

  // Trains on batches from position() on, until the source ends or global_step() reaches max_steps. Saves a checkpoint
  // at the start of a new run, as configured in between, and at the end, even after an error of the source. Cancelled,
  // after saving, if it was interrupted; a step that had not begun to update variables is then abandoned, and repeated
  // by the run that resumes.
  absl::Status Train(const InputFn& input_fn, std::optional<int64_t> max_steps,
                     absl::Span<const std::unique_ptr<logs::Hook>> hooks);

  // Evaluates one pass over the source, at most max_steps batches, and writes the results as events in model_dir/eval.
  // Cancelled if it was interrupted. If a loss is not finite, the error names the first tensor that is not: DataLoss
  // for a variable of the checkpoint that the run began with, else Internal.
  absl::StatusOr<EvalResults> Evaluate(const InputFn& input_fn, std::optional<int64_t> max_steps);

  // Returns the predictions for one batch of features, by name in the order of the model. NotFound if nothing was
  // trained; if one is not finite, errors as in Evaluate.
  absl::StatusOr<std::vector<std::pair<std::string, compute::Tensor>>> Predict(const data::ElementSpec& spec,
                                                                               const data::Tensors& features);

  // Returns the model for prediction on a batch of one example in float32, its variables ready to be read. NotFound if
  // nothing was trained, DataLoss if one of its variables is not finite.
  absl::StatusOr<BuiltModel> BuildForExport(const data::ElementSpec& spec);
  // Makes the variables of a graph that was built elsewhere ready to be read, likewise.
  absl::Status LoadVariables(const compute::Graph& graph);
  // Returns the trained value of a variable.
  absl::StatusOr<compute::Tensor> Variable(const std::string& name) const { return replicas_.Read(name); }

 private:
  // The state that the steps of one train call share (train_call.cc).
  class TrainCall;

  Estimator(Model model, EstimatorConfig config, std::unique_ptr<distribute::Strategy> strategy);
  absl::Status OpenModelDir();
  // Returns NotFound if nothing was trained.
  absl::Status CheckTrained() const;
  std::string AlgorithmsFile() const;
  void ReadAlgorithms();
  std::string FlagsFile() const;
  absl::Status KeepFlags() const;
  std::string EvaluatedStepFile() const;
  // Returns the programs of Replicas::ProgramFor.
  absl::StatusOr<ReplicatedProgram*> ProgramFor(Mode mode, const data::ElementSpec& spec, const data::Batch& batch,
                                                std::optional<int> turn = {});
  // Returns the error for the first variable of `graph`, except sums, that is not finite; OK if there is none.
  absl::Status CheckFinite(const compute::Graph& graph) const;
  // Returns the error for a `what` ("the loss") that is not finite in the last run of a program, which changes no
  // variables but sums: runs it again.
  absl::Status ExplainNonFinite(absl::string_view what, ReplicatedProgram& program);
  // Takes the variables of `graph` that are new from the checkpoint, or gives them their initial values.
  absl::Status PrepareVariables(const compute::Graph& graph);
  absl::Status SaveCheckpoint();
  absl::StatusOr<EventWriter*> TrainEvents();
  bool StopIsWanted() const { return config_.stop != nullptr && *config_.stop != 0; }
  absl::Status StoppedInEvaluation() const;
  // Logs that the save for Interruption::kSave is done.
  void TellSaved() const;

  const Model model_;
  EstimatorConfig config_;
  std::unique_ptr<distribute::Strategy> strategy_;
  compute::AlgorithmChoices algorithm_choices_;
  Replicas replicas_;
  std::unique_ptr<BundleReader> restored_;  // open while there may be variables to take from it
  std::unique_ptr<WarmStart> warm_start_;   // for a new run with EstimatorConfig::warm_start
  std::string origin_ = "fresh";
  int64_t global_step_ = 0;
  data::Position position_;
  std::optional<int64_t> saved_step_;     // step of the newest checkpoint, which may still be being written
  std::optional<int64_t> restored_step_;  // step of the checkpoint that the run began with
  std::optional<int64_t> evaluated_step_;
  std::unique_ptr<BackgroundSaver> saver_;
  std::unique_ptr<EventWriter> train_events_, eval_events_;
};

}  // namespace official::train
