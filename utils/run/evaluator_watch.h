// EvaluatorWatch: looks, on the chief, whether the evaluator of the run is there. The training does not need it.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace official::run {

class EvaluatorWatch {
 public:
  // Warns when the evaluator that holds the lock of `eval_dir` has gone, as often as that happens.
  explicit EvaluatorWatch(std::string eval_dir);

 private:
  std::mutex mutex_;
  std::condition_variable_any never_;
  std::jthread thread_;  // last: starts when all else is there
};

}  // namespace official::run
