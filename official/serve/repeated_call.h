// RepeatedCall: a function that a thread of its own calls again and again.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace official::serve {

class RepeatedCall {
 public:
  // Calls `call` after `interval`, and again when that is over since the end of the call before. If one runs out of
  // memory (std::bad_alloc), the rest of it is left out. Throws std::system_error if no thread can be started. The
  // destructor waits for the end of a call, and there is none afterwards.
  RepeatedCall(std::chrono::milliseconds interval, std::function<void()> call);

 private:
  std::mutex mutex_;
  std::condition_variable_any never_;
  std::jthread thread_;  // last: starts when all else is there
};

}  // namespace official::serve
