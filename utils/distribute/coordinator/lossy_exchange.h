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

// Who is lost, for all exchanges of a job.
class Losses {
 public:
  void Lose(int task) {
    const std::lock_guard<std::mutex> lock(mutex_);
    lost_.insert(task);
  }
  // A process of the task begins, also in place of a lost one.
  void Begin(int task) {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++incarnations_[task];
    lost_.erase(task);
  }
  int incarnation(int task) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return incarnations_[task];
  }
  bool IsLost(int task) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return lost_.count(task) > 0;
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
    if (losses_.IsLost(exchange_->worker())) return absl::CancelledError("this process was killed");
    if (losses_.IsLost(worker)) return absl::OkStatus();
    return exchange_->Send(worker, channel, parts);
  }
  absl::StatusOr<std::string> Receive(int worker, Channel channel, std::chrono::seconds deadline) override {
    const auto end = std::chrono::steady_clock::now() + deadline;
    for (;;) {
      if (losses_.IsLost(exchange_->worker())) return absl::CancelledError("this process was killed");
      if (losses_.IsLost(worker)) return absl::UnavailableError(absl::StrCat(NameOf(worker), " was lost"));
      absl::StatusOr<std::string> frame = exchange_->Receive(worker, channel, std::chrono::seconds(0));
      if (!absl::IsDeadlineExceeded(frame.status()) || std::chrono::steady_clock::now() > end) return frame;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  absl::Status Check() override {
    if (losses_.IsLost(exchange_->worker())) return absl::CancelledError("this process was killed");
    return exchange_->Check();
  }
  void Fail(absl::string_view reason) override {
    if (!losses_.IsLost(exchange_->worker())) exchange_->Fail(reason);
  }

 private:
  const std::unique_ptr<Exchange> exchange_;
  Losses& losses_;
};

}  // namespace official::coordinator
