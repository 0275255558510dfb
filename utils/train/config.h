// The configuration of an Estimator, and the requests that it takes from outside while it runs.
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
#include "utils/compute/core/dtype.h"
#include "utils/compute/core/loss_scale.h"
#include "utils/data/batch.h"
#include "utils/train/run_facts.h"

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

}  // namespace official::train
