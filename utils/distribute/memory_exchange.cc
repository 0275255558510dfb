#include "utils/distribute/memory_exchange.h"

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "utils/distribute/memory_exchange_faults.h"

namespace official::distribute {
namespace {

// The frames that are on their way, and the processes of the workers, which have ascending numbers.
struct Mail {
  explicit Mail(int num_workers)
      : newest(num_workers), is_lost(num_workers), known(num_workers, std::vector<int>(num_workers)) {}
  using Key = std::tuple<int, int, Exchange::Channel>;  // from, to
  std::mutex mutex;
  std::condition_variable changed;
  std::map<Key, std::deque<std::string>> frames;
  std::optional<int> failed;            // the first worker that has failed
  std::string reason;                   // why
  std::vector<int> newest;              // process of each worker
  std::vector<bool> is_lost;            // that one
  std::vector<std::vector<int>> known;  // the process of the second worker that the first sends to
};

class MemoryExchange : public Exchange {
 public:
  MemoryExchange(int worker, int num_workers, int incarnation, std::shared_ptr<Mail> mail)
      : worker_(worker), num_workers_(num_workers), incarnation_(incarnation), mail_(std::move(mail)) {}

  int worker() const override { return worker_; }
  int num_workers() const override { return num_workers_; }
  int incarnation() const override { return incarnation_; }

  using Exchange::Send;
  absl::Status Send(int worker, Channel channel, absl::Span<const absl::string_view> parts) override {
    const std::lock_guard<std::mutex> lock(mail_->mutex);
    if (has_failed()) return Failed();
    if (IsGone(worker)) return absl::OkStatus();
    mail_->frames[{worker_, worker, channel}].push_back(absl::StrJoin(parts, ""));
    mail_->changed.notify_all();
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> Receive(int worker, Channel channel, std::chrono::seconds deadline) override {
    std::unique_lock<std::mutex> lock(mail_->mutex);
    std::deque<std::string>& frames = mail_->frames[{worker, worker_, channel}];
    const auto is_over = [&] { return has_failed() || !frames.empty() || IsGone(worker); };
    const bool in_time = mail_->changed.wait_for(lock, deadline, is_over);
    if (has_failed() && (frames.empty() || is_gone())) return Failed();
    const bool is_of_next = mail_->known[worker_][worker] < mail_->newest[worker];
    if (IsGone(worker) && (frames.empty() || is_of_next)) {
      return absl::UnavailableError(absl::StrCat("worker ", worker, " was lost"));
    }
    if (!in_time) {
      return absl::DeadlineExceededError(
          absl::StrCat("worker ", worker_, " has waited ", deadline.count(), " s for worker ", worker));
    }
    std::string frame = std::move(frames.front());
    frames.pop_front();
    return frame;
  }

  absl::Status WaitForReturn(int worker, std::chrono::milliseconds deadline) override {
    std::unique_lock<std::mutex> lock(mail_->mutex);
    int& known = mail_->known[worker_][worker];
    const auto is_over = [&] { return has_failed() || known < mail_->newest[worker]; };
    const bool in_time = mail_->changed.wait_for(lock, deadline, is_over);
    if (has_failed()) return Failed();
    if (!in_time) return absl::DeadlineExceededError(absl::StrCat("worker ", worker, " has not come back"));
    known = mail_->newest[worker];
    return absl::OkStatus();
  }

  absl::Status Check() override {
    const std::lock_guard<std::mutex> lock(mail_->mutex);
    return has_failed() ? Failed() : absl::OkStatus();
  }

  void Fail(absl::string_view reason) override {
    const std::lock_guard<std::mutex> lock(mail_->mutex);
    if (has_failed()) return;
    mail_->failed = worker_;
    mail_->reason = std::string(reason);
    mail_->changed.notify_all();
  }

  void Lose() {
    const std::lock_guard<std::mutex> lock(mail_->mutex);
    mail_->is_lost[worker_] = true;
    mail_->changed.notify_all();
  }
  std::unique_ptr<Exchange> StartAgain() {
    const std::lock_guard<std::mutex> lock(mail_->mutex);
    for (auto& [key, frames] : mail_->frames) {
      if (std::get<0>(key) == worker_ || std::get<1>(key) == worker_) frames.clear();
    }
    mail_->is_lost[worker_] = false;
    mail_->known[worker_] = mail_->newest;
    mail_->changed.notify_all();
    return std::make_unique<MemoryExchange>(worker_, num_workers_, ++mail_->newest[worker_], mail_);
  }

 private:
  // True for the process that is lost itself.
  bool is_gone() const { return incarnation_ < mail_->newest[worker_] || mail_->is_lost[worker_]; }
  bool has_failed() const { return mail_->failed || is_gone(); }
  // True if the process of a worker that this one knows is lost.
  bool IsGone(int worker) const {
    return mail_->known[worker_][worker] < mail_->newest[worker] || mail_->is_lost[worker];
  }
  absl::Status Failed() const {
    if (is_gone()) return absl::CancelledError(absl::StrCat("this process of worker ", worker_, " is lost"));
    const std::string& reason = mail_->reason;
    return absl::CancelledError(
        absl::StrCat("worker ", *mail_->failed, " has failed", reason.empty() ? "" : ": ", reason));
  }

  const int worker_, num_workers_, incarnation_;
  const std::shared_ptr<Mail> mail_;
};

}  // namespace

std::vector<std::unique_ptr<Exchange>> MakeMemoryExchanges(int num_workers) {
  const auto mail = std::make_shared<Mail>(num_workers);
  std::vector<std::unique_ptr<Exchange>> exchanges;
  for (int w = 0; w < num_workers; ++w) {
    exchanges.push_back(std::make_unique<MemoryExchange>(w, num_workers, /*incarnation=*/0, mail));
  }
  return exchanges;
}

void Lose(Exchange& worker) { static_cast<MemoryExchange&>(worker).Lose(); }

std::unique_ptr<Exchange> StartAgain(Exchange& worker) { return static_cast<MemoryExchange&>(worker).StartAgain(); }

}  // namespace official::distribute
