#include "utils/distribute/grpc/mailbox.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace official::distribute {
namespace {

// The message of a worker that fails may come a little after the end of another one's connection.
constexpr std::chrono::milliseconds kReasonTakes(300);

// A wait is told of when it has taken so long, and then each time it has become twice as long.
constexpr std::chrono::seconds kTellAfter(10);

}  // namespace

Mailbox::Mailbox(const ConnectOptions& options)
    : worker_(options.worker),
      advice_(options.elastic ? "the others go on from the last checkpoint"
                              : "start all workers again, they continue from the last checkpoint"),
      log_(options.log),
      addresses_(options.addresses) {
  for (int worker = 0; worker < static_cast<int>(options.addresses.size()); ++worker) {
    names_.push_back(TaskName(options, worker));
    dispensable_.push_back(distribute::IsDispensable(options, worker));
  }
}

std::string Mailbox::NameLocked(int worker) const { return absl::StrCat(names_[worker], " at ", addresses_[worker]); }

std::string Mailbox::NameOf(int worker) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return NameLocked(worker);
}

void Mailbox::SetAddress(int worker, const std::string& address) {
  const std::lock_guard<std::mutex> lock(mutex_);
  addresses_[worker] = address;
}

void Mailbox::Put(int from, Exchange::Channel channel, std::string frame) {
  const std::lock_guard<std::mutex> lock(mutex_);
  peers_[from].inboxes[static_cast<int>(channel)].frames.push_back(std::move(frame));
  changed_.notify_all();
}

void Mailbox::SetEnded(int from, Exchange::Channel channel) {
  const std::lock_guard<std::mutex> lock(mutex_);
  peers_[from].inboxes[static_cast<int>(channel)].ended = true;
  changed_.notify_all();
}

void Mailbox::SetLost(int from, absl::string_view why) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Peer& peer = peers_[from];
  const bool has_all = peer.inboxes[0].ended && peer.inboxes[1].ended;
  if (!has_all && !peer.lost) {
    peer.lost = std::string(why);
    if (!IsDispensable(from)) first_lost_ = first_lost_.value_or(from);
  }
  changed_.notify_all();
}

bool Mailbox::SetFailed(int who, const Failure& failure) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (who != worker_) {
    for (Inbox& inbox : peers_[who].inboxes) inbox.ended = true;
    if (IsDispensable(who)) {
      peers_[who].failure = failure.reason;
      changed_.notify_all();
      return false;
    }
  }
  if (failure.lost && *failure.lost < static_cast<int>(addresses_.size())) told_lost_.insert(*failure.lost);
  changed_.notify_all();
  if (!failed_.ok()) return false;
  failed_ = absl::CancelledError(
      failure.lost ? failure.reason
                   : absl::StrCat(names_[who], " has failed", failure.reason.empty() ? "" : ": ", failure.reason));
  return true;
}

bool Mailbox::IsGone(int worker) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const Peer& peer = peers_[worker];
  return peer.has_ended() || peer.lost || told_lost_.count(worker) > 0;
}

std::optional<int> Mailbox::FirstLost() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return first_lost_;
}

std::vector<int> Mailbox::Lost() {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::set<int> lost = told_lost_;
  for (const auto& [worker, peer] : peers_) {
    if (peer.lost && !peer.has_ended()) lost.insert(worker);
  }
  return {lost.begin(), lost.end()};
}

absl::Status Mailbox::ErrorOf(int worker, std::unique_lock<std::mutex>& lock) {
  const Peer& peer = peers_[worker];
  if (failed_.ok() && !peer.lost && !peer.has_ended()) return absl::OkStatus();
  if (failed_.ok()) changed_.wait_for(lock, kReasonTakes, [this] { return !failed_.ok(); });
  if (!failed_.ok()) return failed_;
  if (IsDispensable(worker)) {
    return absl::UnavailableError(absl::StrCat(
        NameLocked(worker), peer.lost ? absl::StrCat(" was lost (", *peer.lost, ")") : " has ended its run",
        peer.failure.empty() ? "" : ": ", peer.failure));
  }
  if (!peer.lost) return absl::CancelledError(absl::StrCat(NameLocked(worker), " has ended its run"));
  return absl::CancelledError(absl::StrCat(NameLocked(worker), " was lost (", *peer.lost, "); ", advice_));
}

absl::Status Mailbox::StateOf(int worker) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (failed_.ok() && IsDispensable(worker)) return absl::OkStatus();
  return ErrorOf(worker, lock);
}

absl::StatusOr<std::string> Mailbox::Receive(int from, Exchange::Channel channel, std::chrono::seconds deadline) {
  std::unique_lock<std::mutex> lock(mutex_);
  const Peer& peer = peers_[from];
  Inbox& inbox = peers_[from].inboxes[static_cast<int>(channel)];
  const auto is_over = [&] {
    return !failed_.ok() || !inbox.frames.empty() || first_lost_ || inbox.ended || peer.lost;
  };
  const Clock::time_point begin = Clock::now();
  for (std::chrono::seconds tell_after = kTellAfter; !is_over(); tell_after *= 2) {
    if (changed_.wait_until(lock, begin + std::min(deadline, tell_after), is_over)) break;
    if (deadline <= tell_after) {
      return absl::DeadlineExceededError(
          absl::StrCat(names_[worker_], " has waited ", deadline.count(), " s for ", NameLocked(from)));
    }
    if (log_) log_(absl::StrCat("has waited ", tell_after.count(), " s for ", NameLocked(from)));
  }
  std::deque<std::string>& frames = inbox.frames;
  if (frames.empty()) {
    // Without the one that is lost the others do nothing, either.
    const absl::Status error = ErrorOf(first_lost_.value_or(from), lock);
    if (frames.empty()) return error;
  }
  std::string frame = std::move(frames.front());
  frames.pop_front();
  return frame;
}

}  // namespace official::distribute
