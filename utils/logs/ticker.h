// A thread that calls a function repeatedly while something else runs.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace official::logs {

// Calls `tick` ten times a second in the bar format, once a second in the others, never in none. Of several tickers
// only the one that began last is called: what began before it waits for it. If no thread can be started nothing is
// called.
class Ticker {
 public:
  explicit Ticker(std::function<void()> tick);
  ~Ticker();  // `tick` is not called afterwards
  Ticker(const Ticker&) = delete;
  Ticker& operator=(const Ticker&) = delete;

 private:
  void Loop(std::chrono::milliseconds interval);

  const std::function<void()> tick_;
  std::mutex mutex_;
  std::condition_variable stopped_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace official::logs
