#include "utils/distribute/memory_exchange.h"

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace official::distribute {
namespace {

// The frames that are on their way.
struct Mail {
  using Key = std::tuple<int, int, Exchange::Channel>;  // from, to
  std::mutex mutex;
  std::condition_variable changed;
  std::map<Key, std::deque<std::string>> frames;
  std::optional<int> failed;  // the first worker that has failed
  std::string reason;         // why
};

class MemoryExchange : public Exchange {
 public:
  MemoryExchange(int worker, int num_workers, std::shared_ptr<Mail> mail)
      : worker_(worker), num_workers_(num_workers), mail_(std::move(mail)) {}

  int worker() const override { return worker_; }
  int num_workers() const override { return num_workers_; }

  using Exchange::Send;
  absl::Status Send(int worker, Channel channel, absl::Span<const absl::string_view> parts) override {
    const std::lock_guard<std::mutex> lock(mail_->mutex);
    if (mail_->failed) return Failed();
    mail_->frames[{worker_, worker, channel}].push_back(absl::StrJoin(parts, ""));
    mail_->changed.notify_all();
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> Receive(int worker, Channel channel, std::chrono::seconds deadline) override {
    std::unique_lock<std::mutex> lock(mail_->mutex);
    std::deque<std::string>& frames = mail_->frames[{worker, worker_, channel}];
    const bool in_time = mail_->changed.wait_for(lock, deadline, [&] { return mail_->failed || !frames.empty(); });
    if (mail_->failed && frames.empty()) return Failed();
    if (!in_time) {
      return absl::DeadlineExceededError(
          absl::StrCat("worker ", worker_, " has waited ", deadline.count(), " s for worker ", worker));
    }
    std::string frame = std::move(frames.front());
    frames.pop_front();
    return frame;
  }

  absl::Status Check() override {
    const std::lock_guard<std::mutex> lock(mail_->mutex);
    return mail_->failed ? Failed() : absl::OkStatus();
  }

  void Fail(absl::string_view reason) override {
    const std::lock_guard<std::mutex> lock(mail_->mutex);
    if (mail_->failed) return;
    mail_->failed = worker_;
    mail_->reason = std::string(reason);
    mail_->changed.notify_all();
  }

 private:
  absl::Status Failed() const {
    const std::string& reason = mail_->reason;
    return absl::CancelledError(
        absl::StrCat("worker ", *mail_->failed, " has failed", reason.empty() ? "" : ": ", reason));
  }

  const int worker_, num_workers_;
  const std::shared_ptr<Mail> mail_;
};

}  // namespace

std::vector<std::unique_ptr<Exchange>> MakeMemoryExchanges(int num_workers) {
  const auto mail = std::make_shared<Mail>();
  std::vector<std::unique_ptr<Exchange>> exchanges;
  for (int w = 0; w < num_workers; ++w) exchanges.push_back(std::make_unique<MemoryExchange>(w, num_workers, mail));
  return exchanges;
}

}  // namespace official::distribute
