// For tests: an exchange between threads whose workers get lost, and come back, when the test says so.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "utils/distribute/exchange.h"

namespace official::coordinator {

// Which workers are lost, for all exchanges of a job.
class Losses {
 public:
  void Lose(int worker) {
    const std::lock_guard<std::mutex> lock(mutex_);
    lost_.insert(worker);
  }
  // A new process of the worker takes part.
  void StartAgain(int worker) {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++incarnations_[worker];
    lost_.erase(worker);
  }
  bool IsLost(int worker) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return lost_.count(worker) > 0;
  }
  // Returns how often the worker was started again.
  int incarnation(int worker) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return incarnations_[worker];
  }

 private:
  std::mutex mutex_;
  std::set<int> lost_;
  std::map<int, int> incarnations_;
};

class LossyExchange : public distribute::Exchange {
 public:
  LossyExchange(std::unique_ptr<Exchange> exchange, Losses& losses) : exchange_(std::move(exchange)), losses_(losses) {}

  int worker() const override { return exchange_->worker(); }
  int num_workers() const override { return exchange_->num_workers(); }
  using Exchange::Send;
  absl::Status Send(int worker, Channel channel, absl::Span<const absl::string_view> parts) override {
    if (losses_.IsLost(exchange_->worker())) return Killed();
    // What is meant for an earlier process does not reach this one.
    if (losses_.IsLost(worker) || KnownIncarnation(worker) != losses_.incarnation(worker)) return absl::OkStatus();
    return exchange_->Send(worker, channel, parts);
  }
  // That a worker has been started again is Unavailable once, too.
  absl::StatusOr<std::string> Receive(int worker, Channel channel, std::chrono::seconds deadline) override {
    const auto end = std::chrono::steady_clock::now() + deadline;
    for (;;) {
      if (losses_.IsLost(exchange_->worker())) return Killed();
      const int incarnation = losses_.incarnation(worker);
      if (losses_.IsLost(worker) || std::exchange(KnownIncarnation(worker), incarnation) != incarnation) {
        return absl::UnavailableError(absl::StrCat(NameOf(worker), " was lost"));
      }
      absl::StatusOr<std::string> frame = exchange_->Receive(worker, channel, std::chrono::seconds(0));
      if (!absl::IsDeadlineExceeded(frame.status()) || std::chrono::steady_clock::now() > end) return frame;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  absl::Status Check() override { return losses_.IsLost(exchange_->worker()) ? Killed() : exchange_->Check(); }
  void Fail(absl::string_view reason) override {
    if (!losses_.IsLost(exchange_->worker())) exchange_->Fail(reason);
  }

 private:
  static absl::Status Killed() { return absl::CancelledError("this process was killed"); }
  // The process that the caller's thread, which is the only one to talk with the worker, sends to.
  int& KnownIncarnation(int worker) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return known_[worker];
  }

  const std::unique_ptr<Exchange> exchange_;
  Losses& losses_;
  std::mutex mutex_;
  std::map<int, int> known_;
};

}  // namespace official::coordinator
