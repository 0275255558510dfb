// ModelDir: what a training leaves in --model_dir, but for its lock (run_lock.h) and its records (utils/logs).
//   checkpoint, model.ckpt-N.*     the checkpoints
//   events.out.tfevents.*, eval/   events for TensorBoard, of the training and of evaluations
//   flags.txt                      the flags of the last run
//   algorithms.txt                 the algorithms that were chosen by timing
//   eval/evaluated_step            the step of the last finished evaluation
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "utils/compute/graph/graph.h"
#include "utils/compute/kernel/algorithm_choices.h"
#include "utils/train/background_saver.h"
#include "utils/train/checkpoint/checkpoint_dir.h"
#include "utils/train/options.h"
#include "utils/train/summary/event_writer.h"

namespace official::train {

class ModelDir {
 public:
  // Makes the directory if necessary and checks that what a training leaves can be written: errors of the file system
  // (PermissionDenied, FailedPrecondition, ...). The caller holds the directory's RunLock. If not `write`, nothing is
  // written, nor made.
  static absl::StatusOr<std::unique_ptr<ModelDir>> Open(TrainOptions options, bool write);

  const std::string& path() const { return options_.model_dir; }

  // Returns the latest checkpoint that is intact, and logs which damaged ones were passed over.
  absl::StatusOr<LatestCheckpoint> FindCheckpoint() const;
  // Writes checkpoints; only if Open was told to write.
  BackgroundSaver& saver() { return *saver_; }

  // Marks the beginning of a training at `step`, once, in the events, with the graph, and in flags.txt.
  absl::Status BeginTraining(int64_t step, const compute::Graph& graph);
  // Returns the events of the training; for after BeginTraining.
  EventWriter& train_events() { return *train_events_; }
  // Returns the events of evaluations, which begin with the first call.
  absl::StatusOr<EventWriter*> EvalEvents();

  // Logs the flags that differ from those of the last training in the directory, if any do.
  void LogChangedFlags() const;

  // Takes the algorithms that an earlier run chose. A damaged file is a warning.
  void ReadAlgorithms(compute::AlgorithmChoices& choices) const;
  absl::Status KeepAlgorithms(const compute::AlgorithmChoices& choices) const;

  std::optional<int64_t> ReadEvaluatedStep() const;
  absl::Status KeepEvaluatedStep(int64_t step) const;

 private:
  ModelDir(TrainOptions options, bool write) : options_(std::move(options)), write_(write) {}
  std::string File(const char* name) const;

  const TrainOptions options_;
  const bool write_;
  std::unique_ptr<BackgroundSaver> saver_;
  std::unique_ptr<EventWriter> train_events_, eval_events_;
};

}  // namespace official::train
