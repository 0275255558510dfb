// ModelDir: what a training leaves in --model_dir, but for its lock (run_lock.h) and its records (utils/logs).
//   checkpoint, model.ckpt-N.*     the checkpoints
//   events.out.tfevents.*, eval/   events for TensorBoard, of the training and of evaluations
//   flags.txt                      the flags of the last run
//   algorithms.txt                 the algorithms that were chosen by timing
//   eval/evaluated_step            the step of the last finished evaluation and, with --stop_threshold, its metric
//   eval/results.txt               with --keep_best or --early_stop: evaluations/evaluation_history.h
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "utils/compute/graph/graph.h"
#include "utils/compute/kernel/algorithm_choices.h"
#include "utils/train/background_saver.h"
#include "utils/train/checkpoint/checkpoint_dir.h"
#include "utils/train/eval_samples.h"
#include "utils/train/options.h"
#include "utils/train/summary/event_writer.h"

namespace official::train {

class ModelDir {
 public:
  enum class Use {
    kWrite,     // training, evaluation; the caller holds the directory's RunLock
    kEvaluate,  // evaluation of what another process trains: only eval/ is written; the caller holds the RunLock there
    kRead,      // prediction, export: nothing is written, nor made
    kNone,      // a worker that is not the chief: the directory is not looked at
  };
  // For kWrite, makes the directory if necessary, finishes what a killed run has left, and checks that what a training
  // leaves can be written: errors of the file system (PermissionDenied, FailedPrecondition, ...).
  // Without `saves`, leaves the checkpoints alone that another process is writing, as a training does in its best/.
  // `meta_graph` is that of CheckpointSaver::Open.
  static absl::StatusOr<std::unique_ptr<ModelDir>> Open(TrainOptions options, Use use, bool saves,
                                                        std::string meta_graph = "");

  // Returns the error with which Open would fail for kWrite, as far as that is known without making anything.
  static absl::Status CheckCanWrite(const std::string& model_dir);

  bool writes() const { return use_ == Use::kWrite; }
  bool writes_evaluations() const { return writes() || use_ == Use::kEvaluate; }

  const std::string& path() const { return options_.model_dir; }

  // Returns the latest checkpoint that is intact, and logs which damaged ones were passed over. DataLoss if there are
  // such and TrainOptions::only_latest. Not for kNone.
  absl::StatusOr<LatestCheckpoint> FindCheckpoint() const;
  // Writes checkpoints; only for kWrite, with `saves`.
  BackgroundSaver& saver() { return *saver_; }
  // Waits until the checkpoint that is being written, if there is one, is finished; returns the error of the last save.
  absl::Status WaitForSave() { return saver_ == nullptr ? absl::OkStatus() : saver_->Wait(); }
  // True if the last save failed, and the next one tries again: BackgroundSaver::tries_again.
  bool tries_save_again() const { return saver_ != nullptr && saver_->tries_again(); }

  // Marks the beginning of a training after `step`, once, in the events, with the graph, and in flags.txt.
  absl::Status BeginTraining(int64_t step, const compute::Graph& graph);
  // Returns the events of the training; only for kWrite, after BeginTraining.
  EventWriter& train_events() { return *train_events_; }
  // Returns the events of evaluations, which begin with the first call; only if writes_evaluations().
  absl::StatusOr<EventWriter*> EvalEvents();
  // Adds samples to the events of evaluations: a table of their texts and, with the first of this process, their
  // images, which are those of all of them. Nothing if there are none. Only if writes_evaluations().
  absl::Status AddEvalSamples(int64_t step, EvalSamples samples);

  // Logs the flags that differ from those of the last training in the directory, if any do: those of these names, or
  // without names all.
  void LogChangedFlags(absl::Span<const std::string> names = {}) const;

  // Takes the algorithms that an earlier run chose. A damaged file is a warning. Not for kNone.
  void ReadAlgorithms(compute::AlgorithmChoices& choices) const;
  absl::Status KeepAlgorithms(const compute::AlgorithmChoices& choices) const;

  // The last finished evaluation, in its file.
  struct EvaluatedStep {
    int64_t step;
    std::optional<double> metric = std::nullopt;  // that --stop_threshold compares, if the flag was given
  };
  std::optional<EvaluatedStep> ReadEvaluatedStep() const;
  absl::Status KeepEvaluatedStep(const EvaluatedStep& evaluated) const;
  // Removes the file.
  absl::Status ForgetEvaluatedStep() const;

 private:
  ModelDir(TrainOptions options, Use use) : options_(std::move(options)), use_(use) {}
  std::string File(absl::string_view name) const;

  const TrainOptions options_;
  const Use use_;
  std::unique_ptr<BackgroundSaver> saver_;
  std::unique_ptr<EventWriter> train_events_, eval_events_;
  bool has_sample_images_ = false;  // eval_events_ have them
};

}  // namespace official::train
