#include "utils/logs/ticker.h"

#include <algorithm>
#include <exception>
#include <utility>
#include <vector>

#include "utils/logs/log.h"

namespace official::logs {
namespace {

// All tickers, the one that began last at the end.
struct Tickers {
  std::mutex mutex;
  std::vector<const Ticker*> all;
};
Tickers& GetTickers() {
  static Tickers* const tickers = new Tickers;
  return *tickers;
}

bool IsInnermost(const Ticker* ticker) {
  Tickers& tickers = GetTickers();
  const std::lock_guard lock(tickers.mutex);
  return tickers.all.back() == ticker;
}

}  // namespace

Ticker::Ticker(std::function<void()> tick) : tick_(std::move(tick)) {
  {
    Tickers& tickers = GetTickers();
    const std::lock_guard lock(tickers.mutex);
    tickers.all.push_back(this);
  }
  if (CurrentLogFormat() == LogFormat::kNone) return;
  const std::chrono::milliseconds interval(CurrentLogFormat() == LogFormat::kBar ? 100 : 1000);
  try {
    thread_ = std::thread([this, interval] { Loop(interval); });
  } catch (const std::exception&) {  // no memory, or no thread
    // Work that needs a thread will say so; this one it can do without.
  }
}

Ticker::~Ticker() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  stopped_.notify_one();
  if (thread_.joinable()) thread_.join();
  Tickers& tickers = GetTickers();
  const std::lock_guard lock(tickers.mutex);
  tickers.all.erase(std::find(tickers.all.begin(), tickers.all.end(), this));
}

void Ticker::Loop(std::chrono::milliseconds interval) {
  std::unique_lock lock(mutex_);
  while (!stopped_.wait_for(lock, interval, [this] { return stop_; })) {
    lock.unlock();
    if (IsInnermost(this)) tick_();
    lock.lock();
  }
}

}  // namespace official::logs
