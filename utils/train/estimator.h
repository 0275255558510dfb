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

// What somebody outside (a signal) wants of a run, asked after each training step and before each of an evaluation, and
// every kAskInterval while either waits for data.
constexpr std::chrono::milliseconds kAskInterval(100);
enum class Interruption { kNone, kSave, kStop };

// Whether a run goes on from a checkpoint in model_dir.
enum class Resume { kAuto, kNever, kMust };

struct EstimatorConfig {
  std::string model_dir;
  std::string dataset;         // "MNIST": a model_dir is for one data set; empty: not known
  std::vector<RunFact> facts;  // what else is compared with the checkpoint and kept in the next ones
  uint64_t seed = 1;
  compute::DType dtype = compute::DType::kFloat32;
  compute::LossScale loss_scale = {};
  // A training step computes its batch in so many parts, one after the other, and updates the variables once: with the
  // memory of a part, the results of the whole, but for rounding and what the model itself computes over its batch.
  int grad_accum_steps = 1;
  std::optional<int64_t> save_checkpoints_steps;  // if set, save_checkpoints_secs does not count
  int save_checkpoints_secs = 600;
  int keep_checkpoint_max = 5;     // 0 keeps all
  int save_summary_steps = 100;    // events and the loss of metric.log
  int check_replicas_steps = 100;  // steps between two comparisons of the replicas' variables
  // Where a kernel has several algorithms, times them in the first run in model_dir and keeps the choice in
  // algorithms.txt there. Off: the choice does not depend on times.
  bool time_algorithms = false;
  std::string flags_text;       // shown by TensorBoard and kept in flags.txt
  bool write_model_dir = true;  // false: nothing is written (prediction, export)
  Resume resume = Resume::kAuto;
  // A checkpoint, or a directory with one, that a new run takes the model's variables from (warm_start.h).
  std::optional<std::string> warm_start = std::nullopt;
  std::string mismatch_hint = "";  // ends the error for a checkpoint of another model
  std::function<Interruption()> interruption = [] { return Interruption::kNone; };
  // Not 0 once interruption() answers kStop: where that loses nothing, a step or a batch is left between two kernels.
  const std::atomic<int>* stop = nullptr;
};

// Reads a data set from `start` on; what Estimator::Train wants for one train call.
using InputFn = std::function<absl::StatusOr<data::BatchSourcePtr>(data::Position start)>;

// Name and value of each metric, sorted by name; loss and global_step among them.
using EvalResults = std::vector<std::pair<std::string, double>>;

class Estimator {
 public:
  // Opens model_dir and finds its latest checkpoint. Who writes there holds its RunLock. Errors: the directory cannot
  // be made or written (FailedPrecondition, PermissionDenied), it holds a run on another data set (InvalidArgument),
  // the checkpoint is damaged (DataLoss), there is one and Resume::kNever (FailedPrecondition), or none and
  // Resume::kMust (NotFound).
  static absl::StatusOr<std::unique_ptr<Estimator>> Create(Model model, EstimatorConfig config,
                                                           std::unique_ptr<distribute::Strategy> strategy);
  ~Estimator();

  // Logs which of config's flags differ from those of the last training in model_dir, if any do.
  void LogChangedFlags() const;

  // Updates done so far, and where the data goes on.
  int64_t global_step() const { return global_step_; }
  data::Position position() const { return position_; }
  // The next Train begins there.
  void ContinueAt(data::Position position) { position_ = position; }
  // The step at which the last finished evaluation was made, by this run or one before it in model_dir.
  std::optional<int64_t> evaluated_step() const { return evaluated_step_; }
  // Keeps that the evaluation at global_step(), with all that belongs to it, is finished.
  absl::Status KeepEvaluatedStep();
  // One of the facts, by its name; there must be one of this name.
  const RunFact& fact(absl::string_view name) const;
  // The seed of this run: of the checkpoint if there is one.
  uint64_t seed() const { return config_.seed; }
  // "fresh" or "resumed from model.ckpt-600".
  const std::string& origin() const { return origin_; }
  const distribute::Strategy& strategy() const { return *strategy_; }

  // InvalidArgument, with the largest batch that would fit, if training with `batch_size` needs more of the host's
  // memory than there is. Allocates nothing of that size.
  absl::Status CheckBatchFits(const data::ElementSpec& spec, int64_t batch_size);

  // Trains on batches from position() on, until the source ends or global_step() reaches max_steps. Saves a checkpoint
  // at the start of a new run, as configured in between, and at the end, be it an error of the source. Cancelled, after
  // saving, if it was interrupted; a step that had not begun to update variables is then left, and done again by the
  // run that resumes.
  absl::Status Train(const InputFn& input_fn, std::optional<int64_t> max_steps,
                     absl::Span<const std::unique_ptr<logs::Hook>> hooks);

  // Evaluates one pass over the source, at most max_steps batches, and writes the results as events in model_dir/eval.
  // Cancelled if it was interrupted. If a loss is not finite, the error names the first tensor that is not: DataLoss
  // for a variable of the checkpoint that the run began with, else Internal.
  absl::StatusOr<EvalResults> Evaluate(const InputFn& input_fn, std::optional<int64_t> max_steps);

  // Predictions for one batch of features, by name in the order of the model. NotFound if nothing was trained; if one
  // is not finite, errors as Evaluate.
  absl::StatusOr<std::vector<std::pair<std::string, compute::Tensor>>> Predict(const data::ElementSpec& spec,
                                                                               const data::Tensors& features);

  // Prediction for a batch of one example in float32, its variables ready to be read. NotFound if nothing was trained,
  // DataLoss if one of its variables is not finite.
  absl::StatusOr<BuiltModel> BuildForExport(const data::ElementSpec& spec);
  // The same for the variables of a graph that was built elsewhere.
  absl::Status LoadVariables(const compute::Graph& graph);
  // The trained value of a variable.
  absl::StatusOr<compute::Tensor> Variable(const std::string& name) const { return replicas_.Read(name); }

 private:
  // What the steps of one train call share (train_call.cc).
  class TrainCall;

  Estimator(Model model, EstimatorConfig config, std::unique_ptr<distribute::Strategy> strategy);
  absl::Status OpenModelDir();
  // NotFound if nothing was trained.
  absl::Status CheckTrained() const;
  std::string AlgorithmsFile() const;
  void ReadAlgorithms();
  std::string FlagsFile() const;
  absl::Status KeepFlags() const;
  std::string EvaluatedStepFile() const;
  // See Replicas::ProgramFor.
  absl::StatusOr<ReplicatedProgram*> ProgramFor(Mode mode, const data::ElementSpec& spec, const data::Batch& batch,
                                                std::optional<int> turn = {});
  // OK, or the error for the first variable of `graph`, but for sums, that is not finite.
  absl::Status CheckFinite(const compute::Graph& graph) const;
  // The error for `what` ("the loss") of the last run of a program that changes no variables but sums, which is not
  // finite: runs it again.
  absl::Status ExplainNonFinite(absl::string_view what, ReplicatedProgram& program);
  // Takes the variables of `graph` that are new from the checkpoint, or gives them their initial values.
  absl::Status PrepareVariables(const compute::Graph& graph);
  absl::Status SaveCheckpoint();
  absl::StatusOr<EventWriter*> TrainEvents();
  bool StopIsWanted() const { return config_.stop != nullptr && *config_.stop != 0; }
  absl::Status StoppedInEvaluation() const;
  // Answers Interruption::kSave.
  void TellSaved() const;

  const Model model_;
  EstimatorConfig config_;
  std::unique_ptr<distribute::Strategy> strategy_;
  compute::AlgorithmChoices algorithm_choices_;
  Replicas replicas_;
  std::unique_ptr<BundleReader> restored_;  // open while there may be variables to take from it
  std::unique_ptr<WarmStart> warm_start_;   // of a new run that was given one
  std::string origin_ = "fresh";
  int64_t global_step_ = 0;
  data::Position position_;
  std::optional<int64_t> saved_step_;     // of the newest checkpoint, which may still be being written
  std::optional<int64_t> restored_step_;  // of the checkpoint that the run began with
  std::optional<int64_t> evaluated_step_;
  std::unique_ptr<BackgroundSaver> saver_;
  std::unique_ptr<EventWriter> train_events_, eval_events_;
};

}  // namespace official::train
