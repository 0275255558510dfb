#include "utils/train/checkpoint_follower.h"

#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/logs/log.h"
#include "utils/train/checkpoint/checkpoint_dir.h"
#include "utils/train/rounds.h"

namespace official::train {

CheckpointFollower::CheckpointFollower(std::string model_dir, FollowOptions options)
    : model_dir_(std::move(model_dir)),
      options_(std::move(options)),
      next_evaluation_(Clock::now() + options_.start_delay),
      last_new_(Clock::now()) {}

absl::Status CheckpointFollower::WaitForFirst() {
  while (!LatestCheckpointName(model_dir_)) RETURN_IF_ERROR(Wait("the first checkpoint"));
  last_new_ = Clock::now();
  return absl::OkStatus();
}

absl::Status CheckpointFollower::WaitForNext(Estimator& estimator, absl::FunctionRef<bool(const RunState&)> is_last) {
  for (;;) {
    const std::optional<std::string> name = LatestCheckpointName(model_dir_);
    if (name && name != loaded_) RETURN_IF_ERROR(Load(*name, estimator));
    const RunState& state = estimator.state();
    if (!IsEvaluated(state) && (Clock::now() >= next_evaluation_ || is_last(state))) break;
    RETURN_IF_ERROR(Wait(absl::StrCat("a checkpoint after step ", state.global_step)));
  }
  next_evaluation_ = Clock::now() + options_.throttle;
  return absl::OkStatus();
}

absl::Status CheckpointFollower::Load(const std::string& name, Estimator& estimator) {
  const absl::Status loaded = estimator.Reload();
  const bool may_be_removed = absl::IsNotFound(loaded) || absl::IsDataLoss(loaded);
  if (may_be_removed && LatestCheckpointName(model_dir_) != name) return absl::OkStatus();
  RETURN_IF_ERROR(loaded);
  loaded_ = name;
  last_new_ = Clock::now();
  warned_ = std::chrono::minutes(0);
  return absl::OkStatus();
}

absl::Status CheckpointFollower::Wait(const std::string& for_what) {
  constexpr std::chrono::minutes kWarnEvery(10);
  std::this_thread::sleep_for(kAskInterval);
  if (options_.interruption() == Interruption::kStop) {
    return absl::CancelledError(absl::StrCat("stopped while it waited for ", for_what));
  }
  const auto waited = Clock::now() - last_new_;
  if (waited >= options_.timeout) {
    return absl::UnavailableError(absl::StrCat("--model_dir=", model_dir_, " has had no new checkpoint for ",
                                               options_.timeout.count(), " s, in which ", for_what,
                                               " was waited for; is the chief training there?"));
  }
  if (waited >= warned_ + kWarnEvery) {
    warned_ += kWarnEvery;
    LOG(WARNING) << "has waited " << warned_.count() << " minutes for " << for_what << " in " << model_dir_
                 << "; is the chief training there?";
  }
  return absl::OkStatus();
}

}  // namespace official::train
