// The configuration of an Estimator: what the command line says (options.h), what the program adds, and the requests
// that it takes from outside while it runs.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "utils/data/batch.h"
#include "utils/distribute/placement.h"
#include "utils/distribute/shards.h"
#include "utils/train/model_dir.h"
#include "utils/train/options.h"
#include "utils/train/run_facts.h"

namespace official::train {

// A request from outside (a signal) to a run, which asks for it after each training step, before each step of an
// evaluation, and every kAskInterval while either waits for data.
constexpr std::chrono::milliseconds kAskInterval(100);
enum class Interruption { kNone, kSave, kStop };

// How parameter servers update their variables, if the strategy has any.
struct ServerOptions {
  // True: a step is made from the gradients of several workers, as with tf.compat.v1.train.SyncReplicasOptimizer.
  bool sync_replicas = false;
  std::optional<int> replicas_to_aggregate = {};  // of a synchronous step; as many as there are workers
  // An asynchronous gradient is dropped if more updates than these were made since the variables were read, as with
  // tf.contrib.opt.DropStaleGradientOptimizer; none is without.
  std::optional<int> max_gradient_staleness = {};
  distribute::Placement placement = distribute::Placement::kRoundRobin;
  distribute::Partitioner partitioner = nullptr;  // divides the variables; null: each is whole on one server
};

struct EstimatorConfig : TrainOptions {
  std::string dataset = "";                   // "MNIST": a model_dir is for one data set; empty: not known
  std::string training_data = "";             // says what all workers of a job with parameter servers train on
  std::vector<RunFact> facts = {};            // further facts, compared with the checkpoint and kept in the next ones
  ModelDir::Use use = ModelDir::Use::kWrite;  // of model_dir; not kNone
  // False: nothing is trained. Variables then have the values of their moving averages, where the checkpoint has them.
  bool trains = true;
  // A checkpoint, or a directory with one, that a new run takes the model's variables from (warm_start.h).
  std::optional<std::string> warm_start = std::nullopt;
  // The bytes of model.ckpt-<step>.meta beside each checkpoint, a MetaGraphDef; empty: there is none.
  std::string meta_graph = "";
  std::string mismatch_hint = "";  // ends the error for a checkpoint of another model
  // What to give to continue a training that is stopped, for its message.
  std::string what_continues = "the same command";
  ServerOptions servers = {};
  // At least as many examples as any batch has; 0: all have the same number. Workers of parameter servers need it to
  // draw random numbers of their own.
  int64_t batch_size = 0;
  std::function<Interruption()> interruption = [] { return Interruption::kNone; };
  // Not 0 once interruption() returns kStop: a step or a batch is then abandoned between two kernels where that loses
  // nothing.
  const std::atomic<int>* stop = nullptr;
};

// What ends the whole training with a call of Estimator::Train: nothing, because others follow; max_steps, if they are
// reached; those or the end of the data.
enum class TrainingEnds { kLater, kAtMaxSteps, kAtMaxStepsOrData };

// Opens a data set from `start` on, for one call of Estimator::Train or Evaluate.
using InputFn = std::function<absl::StatusOr<data::BatchSourcePtr>(data::Position start)>;

// The name and value of each metric, sorted by name, including loss and global_step.
using EvalResults = std::vector<std::pair<std::string, double>>;

}  // namespace official::train
