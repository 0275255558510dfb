#include "utils/run/evaluator_watch.h"

#include <chrono>
#include <optional>
#include <utility>

#include "utils/logs/log.h"
#include "utils/train/run_lock.h"

namespace official::run {

EvaluatorWatch::EvaluatorWatch(std::string eval_dir)
    : thread_([this, eval_dir = std::move(eval_dir)](const std::stop_token& stop) {
        constexpr std::chrono::seconds kLookEvery(1);
        std::optional<std::string> seen;
        std::unique_lock<std::mutex> lock(mutex_);
        while (!stop.stop_requested()) {
          const std::optional<std::string> holder = train::RunLock::HolderOf(eval_dir);
          if (seen && !holder) {
            LOG(WARNING) << "the evaluator (" << *seen << ") has gone; the training goes on, and its checkpoints are "
                         << "evaluated when the evaluator is started again";
          }
          seen = holder;
          never_.wait_for(lock, stop, kLookEvery, [] { return false; });
        }
      }) {}

}  // namespace official::run
