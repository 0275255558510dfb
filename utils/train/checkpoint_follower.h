// CheckpointFollower: in an evaluator, waits for the checkpoints that another process, which trains, saves in a
// model_dir, as TensorFlow's continuous evaluation does (tensorflow_estimator 1.13, python/estimator/training.py).
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "utils/train/config.h"
#include "utils/train/estimator.h"
#include "utils/train/run_state.h"

namespace official::train {

// The times of EvalSpec, and how long a checkpoint is waited for.
struct FollowOptions {
  std::chrono::seconds start_delay{120};  // until the first evaluation
  std::chrono::seconds throttle{600};     // from the begin of an evaluation to that of the next
  std::chrono::seconds timeout{86400};    // without a new checkpoint, or in which model_dir has none
  std::chrono::seconds warn_every{600};   // of that time
  std::function<Interruption()> interruption = [] { return Interruption::kNone; };  // asked every kAskInterval
};

class CheckpointFollower {
 public:
  CheckpointFollower(std::string model_dir, FollowOptions options);

  // Returns once there is a checkpoint to create an Estimator from. Errors: as WaitForNext.
  absl::Status WaitForFirst();

  // Returns once the estimator has a checkpoint that is to be evaluated now: the latest one, if no evaluation of its
  // step is recorded in model_dir. It is waited for as long as the options say, but for one of which `is_last` is true,
  // with which the training ends. Returns, too, once a checkpoint of the same step has taken the place of one that was
  // loaded before, and `is_last` is true of it. Cancelled if a stop is wanted, Unavailable after the timeout; else the
  // errors of Estimator::Reload.
  absl::Status WaitForNext(Estimator& estimator, absl::FunctionRef<bool(const RunState&)> is_last);

 private:
  using Clock = std::chrono::steady_clock;

  // Waits a little. Errors: Cancelled and Unavailable, as above.
  absl::Status Wait(const std::string& for_what);
  // The latest checkpoint: its name, and its files among all that have had their names.
  struct Latest {
    std::string name, files;
    friend bool operator==(const Latest&, const Latest&) = default;
  };
  std::optional<Latest> FindLatest() const;
  // Loads a checkpoint, unless the training has removed or replaced it meanwhile.
  absl::Status Load(const Latest& latest, Estimator& estimator);

  const std::string model_dir_;
  const FollowOptions options_;
  std::optional<Latest> loaded_;       // the checkpoint that the estimator has
  Clock::time_point next_evaluation_;  // not before
  Clock::time_point last_new_;         // when there was a new checkpoint
  std::chrono::seconds warned_{0};     // of so long a time without
};

}  // namespace official::train
