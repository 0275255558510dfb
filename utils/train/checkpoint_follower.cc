#include "utils/train/checkpoint_follower.h"

#include <sys/stat.h>

#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/files/files.h"
#include "utils/logs/log.h"
#include "utils/misc/run_files.h"
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
    const std::optional<Latest> latest = FindLatest();
    bool is_again = false;  // another one of the same step
    if (latest && latest != loaded_) {
      is_again = loaded_ && loaded_->name == latest->name;
      RETURN_IF_ERROR(Load(*latest, estimator));
    }
    const RunState& state = estimator.state();
    if ((!IsEvaluated(state) || is_again) && is_last(state)) break;
    if (!IsEvaluated(state) && Clock::now() >= next_evaluation_) break;
    RETURN_IF_ERROR(Wait(absl::StrCat("a checkpoint after step ", state.global_step)));
  }
  next_evaluation_ = Clock::now() + options_.throttle;
  return absl::OkStatus();
}

std::optional<CheckpointFollower::Latest> CheckpointFollower::FindLatest() const {
  const std::optional<std::string> name = LatestCheckpointName(model_dir_);
  if (!name) return std::nullopt;
  Latest latest = {.name = *name, .files = ""};
  for (const absl::string_view suffix : {misc::kDataSuffix, misc::kIndexSuffix}) {
    struct stat info = {};
    if (stat(absl::StrCat(files::JoinPath(model_dir_, *name), suffix).c_str(), &info) != 0) continue;
    absl::StrAppend(&latest.files, info.st_ino, " ", info.st_mtim.tv_sec, ".", info.st_mtim.tv_nsec, " ");
  }
  return latest;
}

absl::Status CheckpointFollower::Load(const Latest& latest, Estimator& estimator) {
  const absl::Status loaded = estimator.Reload();
  if (absl::IsNotFound(loaded) || absl::IsDataLoss(loaded)) {
    std::this_thread::sleep_for(kAskInterval);  // one file of two may have its name
    if (FindLatest() != latest) return absl::OkStatus();
  }
  RETURN_IF_ERROR(loaded);
  loaded_ = latest;
  last_new_ = Clock::now();
  warned_ = std::chrono::seconds(0);
  return absl::OkStatus();
}

absl::Status CheckpointFollower::Wait(const std::string& for_what) {
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
  if (waited >= warned_ + options_.warn_every) {
    warned_ += options_.warn_every;
    LOG(WARNING) << "has waited " << warned_.count() << " s for " << for_what << " in " << model_dir_
                 << "; is the chief training there?";
  }
  return absl::OkStatus();
}

}  // namespace official::train
