#include "utils/distribute/parameter_servers.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <new>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/distribute/result_bytes.h"
#include "utils/logs/log.h"

namespace official::distribute {
namespace {

// Answers of servers and the news that a worker leaves are on different channels than what all tasks share.
constexpr Exchange::Channel kRequests = Exchange::Channel::kSums, kNews = Exchange::Channel::kValues;

constexpr std::chrono::milliseconds kAskEvery(100);

}  // namespace

ParameterServers::ParameterServers(Exchange& exchange, int num_servers, std::chrono::seconds timeout)
    : exchange_(exchange), num_servers_(num_servers), timeout_(timeout) {}

std::optional<int> ParameterServers::server() const {
  const int server = exchange_.worker() - num_workers();
  return server >= 0 ? std::optional(server) : std::nullopt;
}

absl::StatusOr<std::vector<std::string>> ParameterServers::Ask(const std::vector<Request>& requests) {
  RETURN_IF_ERROR(broken_);
  for (int s = 0; s < num_servers_; ++s) {
    if (!requests[s].empty()) broken_.Update(exchange_.Send(num_workers() + s, kRequests, requests[s]));
  }
  RETURN_IF_ERROR(broken_);
  std::vector<std::string> answers(num_servers_);
  absl::Status first_error;
  for (int s = 0; s < num_servers_; ++s) {
    if (requests[s].empty()) continue;
    absl::StatusOr<std::string> frame = exchange_.Receive(num_workers() + s, kRequests, timeout_);
    broken_ = frame.status();
    RETURN_IF_ERROR(broken_);
    absl::StatusOr<std::string> answer = UnpackResult(*std::move(frame));
    // All answers are received, so that the next request does not meet one of these.
    first_error.Update(answer.status());
    if (answer.ok()) answers[s] = *std::move(answer);
  }
  RETURN_IF_ERROR(first_error);
  return answers;
}

absl::Status ParameterServers::Leave() {
  for (int s = 0; s < num_servers_; ++s) RETURN_IF_ERROR(exchange_.Send(num_workers() + s, kRequests, ""));
  return is_chief() ? absl::OkStatus() : exchange_.Send(0, kNews, "");
}

absl::StatusOr<bool> ParameterServers::HasLeft(int worker) {
  const absl::Status back = exchange_.WaitForReturn(worker, std::chrono::milliseconds(0));
  if (!back.ok() && !absl::IsDeadlineExceeded(back)) return back;
  if (back.ok()) {
    left_.erase(worker);
    lost_.erase(worker);
  }
  if (left_.count(worker) > 0) return true;
  const absl::Status left = exchange_.Receive(worker, kNews, std::chrono::seconds(1)).status();
  if (absl::IsDeadlineExceeded(left)) return false;
  if (!left.ok() && !absl::IsUnavailable(left)) return left;
  left_.insert(worker);
  if (!left.ok()) lost_.insert(worker);
  return true;
}

absl::StatusOr<bool> ParameterServers::FinishAfterWorkers(absl::FunctionRef<absl::StatusOr<bool>(int worker)> wait) {
  // After the first time none can come back any more; one may have done so just before.
  for (int times = 0; times < 2; ++times) {
    for (int worker = 1; worker < num_workers(); ++worker) {
      ASSIGN_OR_RETURN(const bool has_left, wait(worker));
      if (!has_left) return false;
    }
    exchange_.Finish();
  }
  return true;
}

absl::Status ParameterServers::ServeProcess(int worker, Answerer& answerer) {
  // The chief evaluates between its steps, and a worker may wait for its data: that a task is there is known without
  // requests.
  constexpr std::chrono::seconds kLong = std::chrono::hours(24);
  for (;;) {
    absl::StatusOr<std::string> request = exchange_.Receive(worker, kRequests, kLong);
    if (absl::IsDeadlineExceeded(request.status())) continue;
    if (absl::IsUnavailable(request.status())) {
      LOG(WARNING) << request.status().message() << "; the others train on without it, until it is started again";
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(request.status());
    if (request->empty()) return absl::OkStatus();
    const absl::StatusOr<std::string> answer = answerer.Answer(worker, *std::move(request));
    RETURN_IF_ERROR(exchange_.Send(worker, kRequests, PackResult(answer)));
  }
}

// The workers that have requests, as the threads see it that answer them.
class ParameterServers::Presence {
 public:
  explicit Presence(int num_workers) : threads_(num_workers), is_present_(num_workers, true) {}

  void Set(int worker, bool is_present) {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_present_[worker] = is_present;
  }
  // True once the chief has left and all others have left or are lost, or with an error.
  bool IsOver() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return std::none_of(is_present_.begin(), is_present_.end(), [](bool is_present) { return is_present; });
  }
  // A thread ends. The first error counts, and ends all.
  void EndThread(const absl::Status& status) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!status.ok()) is_present_.assign(is_present_.size(), false);
    status_.Update(status);
    --threads_;
    changed_.notify_all();
  }
  // Waits a little for all threads to end; true if they have.
  bool WaitForThreads(std::chrono::milliseconds time) {
    std::unique_lock<std::mutex> lock(mutex_);
    return changed_.wait_for(lock, time, [this] { return threads_ == 0; });
  }
  absl::Status status() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return status_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int threads_;
  std::vector<bool> is_present_;
  absl::Status status_;
};

absl::Status ParameterServers::ServeWorker(int worker, Answerer& answerer, Presence& presence) {
  for (;;) {
    RETURN_IF_ERROR(ServeProcess(worker, answerer));
    answerer.Leave(worker);
    presence.Set(worker, false);
    if (worker == 0) return absl::OkStatus();
    absl::Status back;
    do {
      if (presence.IsOver()) return absl::OkStatus();
      back = exchange_.WaitForReturn(worker, kAskEvery);
    } while (absl::IsDeadlineExceeded(back));
    RETURN_IF_ERROR(back);
    presence.Set(worker, true);
    LOG(INFO) << exchange_.NameOf(worker) << " takes part from now on";
  }
}

absl::Status ParameterServers::Serve(Answerer& answerer, absl::FunctionRef<bool()> ask_stop) {
  Presence presence(num_workers());
  std::vector<std::jthread> threads;
  // Made while there is memory.
  const absl::Status out_of_memory = absl::InternalError("out of memory for the answer to a worker");
  for (int w = 0; w < num_workers(); ++w) {
    threads.emplace_back([&, w] {
      try {
        presence.EndThread(ServeWorker(w, answerer, presence));
      } catch (const std::bad_alloc&) {
        presence.EndThread(out_of_memory);
        exchange_.Fail(out_of_memory.message());  // which the other threads wait for
      }
    });
  }
  bool stopped = false;
  while (!presence.WaitForThreads(kAskEvery)) {
    if (stopped || !ask_stop()) continue;
    stopped = true;
    exchange_.Fail("it was asked to stop");
  }
  return stopped ? absl::CancelledError("stopped while it served") : presence.status();
}

}  // namespace official::distribute
