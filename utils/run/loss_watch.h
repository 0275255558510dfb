// LossWatch: looks whether another worker is lost while this one does what it cannot interrupt, such as to read its
// data.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "utils/distribute/exchange.h"

namespace official::run {

class LossWatch {
 public:
  // Ends this process, which needs nothing to be saved, when Exchange::Check has an error: with that in the log and the
  // exit status that asks for another start. Before that it calls `before_end`, on another thread.
  LossWatch(distribute::Exchange& exchange, const std::string& program, std::function<void()> before_end);

 private:
  std::mutex mutex_;
  std::condition_variable_any never_;
  std::jthread thread_;  // last: starts when all else is there
};

}  // namespace official::run
