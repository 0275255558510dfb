#include "utils/distribute/grpc/mailbox.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace official::distribute {
namespace {

// The message of a worker that fails may come a little after the end of another one's connection.
constexpr std::chrono::milliseconds kReasonTakes(300);

// A wait is told of when it has taken so long, and then each time it has become twice as long.
constexpr std::chrono::seconds kTellAfter(10);

// What to do once a worker is lost to this one.
std::string Advice(const ConnectOptions& options) {
  if (options.elastic) return "the others go on from the last checkpoint";
  if (IsDispensable(options, options.worker)) {
    return "start this worker again: it takes part again if the job goes on, and else waits for all others, which "
           "continue from the last checkpoint";
  }
  return "start all workers again, they continue from the last checkpoint";
}

}  // namespace

Mailbox::Mailbox(const ConnectOptions& options)
    : worker_(options.worker),
      advice_(Advice(options)),
      peer_timeout_(options.peer_timeout),
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

Mailbox::Peer& Mailbox::Newest(int worker) {
  const auto returned = returned_.find(worker);
  return returned == returned_.end() ? peers_[worker] : returned->second;
}

Mailbox::Peer* Mailbox::Find(Process process) {
  Peer& newest = Newest(process.worker);
  return newest.incarnation == process.incarnation ? &newest : nullptr;
}

Mailbox::Peer& Mailbox::Begin(Process process, const std::string& address) {
  Peer& before = peers_[process.worker];
  if (!before.is_gone()) before.lost = "it was started again";
  for (Inbox& inbox : before.inboxes) inbox.frames.clear();
  addresses_[process.worker] = address;
  changed_.notify_all();
  Peer& returned = returned_[process.worker] = Peer();
  returned.incarnation = process.incarnation;
  returned.address = address;
  return returned;
}

void Mailbox::LoseIfMissing(Peer& peer) {
  if (!peer.lost && Clock::now() >= peer.connects_by) peer.lost = "it has not connected";
}

bool Mailbox::Admit(Process from, const std::string& address) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!IsDispensable(from.worker)) return from.incarnation == 0;
  if (from.incarnation > Newest(from.worker).incarnation) Begin(from, address);
  Peer* const peer = Find(from);
  if (peer == nullptr || peer->lost) return false;
  peer->connects_by = kEver;
  return true;
}

std::optional<int> Mailbox::TakeBack(int worker, const std::string& address) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Peer& before = Newest(worker);
  LoseIfMissing(before);
  if (!before.is_gone()) return std::nullopt;
  const int incarnation = before.incarnation + 1;
  Begin({worker, incarnation}, address).connects_by = Clock::now() + peer_timeout_;
  return incarnation;
}

bool Mailbox::Put(Process from, Exchange::Channel channel, std::string frame) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Peer* const peer = Find(from);
  if (peer == nullptr) return false;
  peer->inboxes[static_cast<int>(channel)].frames.push_back(std::move(frame));
  changed_.notify_all();
  return true;
}

void Mailbox::SetEnded(Process from, Exchange::Channel channel) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Peer* const peer = Find(from);
  if (peer == nullptr) return;
  peer->inboxes[static_cast<int>(channel)].ended = true;
  changed_.notify_all();
}

void Mailbox::SetLost(Process from, absl::string_view why) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Peer* const peer = Find(from);
  if (peer == nullptr) return;
  const bool has_all = peer->inboxes[0].ended && peer->inboxes[1].ended;
  if (!has_all && !peer->lost) {
    peer->lost = std::string(why);
    if (!IsDispensable(from.worker)) first_lost_ = first_lost_.value_or(from.worker);
  }
  changed_.notify_all();
}

void Mailbox::SetOnFailed(std::function<void()> f) {
  const std::lock_guard<std::mutex> lock(mutex_);
  on_failed_ = std::move(f);
}

bool Mailbox::SetFailed(Process process, const Failure& failure) {
  std::unique_lock<std::mutex> lock(mutex_);
  const int who = process.worker;
  if (who != worker_) {
    Peer* const peer = Find(process);
    if (peer == nullptr) return false;
    for (Inbox& inbox : peer->inboxes) inbox.ended = true;
    if (IsDispensable(who)) {
      peer->failure = failure.reason;
      changed_.notify_all();
      return false;
    }
  }
  const auto num_tasks = static_cast<int>(addresses_.size());
  if (failure.lost && *failure.lost >= 0 && *failure.lost < num_tasks) told_lost_.insert(*failure.lost);
  changed_.notify_all();
  if (!failed_.ok()) return false;
  failed_ = absl::CancelledError(
      failure.lost ? failure.reason
                   : absl::StrCat(NameLocked(who), " has failed", failure.reason.empty() ? "" : ": ", failure.reason));
  lock.unlock();
  if (on_failed_) on_failed_();
  return true;
}

bool Mailbox::IsGone(int worker) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return Newest(worker).is_gone() || told_lost_.count(worker) > 0;
}

std::optional<int> Mailbox::FirstLost() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return first_lost_;
}

std::vector<int> Mailbox::Lost() {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::set<int> lost = told_lost_;
  for (const auto& [worker, peer] : peers_) {
    if (peer.lost && !peer.has_ended() && returned_.count(worker) == 0) lost.insert(worker);
  }
  return {lost.begin(), lost.end()};
}

absl::Status Mailbox::ErrorOf(int worker, std::unique_lock<std::mutex>& lock) {
  const Peer& peer = peers_[worker];
  if (failed_.ok() && !peer.is_gone()) return absl::OkStatus();
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

absl::Status Mailbox::CheckOf(int worker) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (failed_.ok() && (IsDispensable(worker) || !peers_[worker].lost)) return absl::OkStatus();
  return ErrorOf(worker, lock);
}

absl::StatusOr<std::string> Mailbox::Receive(int from, Exchange::Channel channel, std::chrono::seconds deadline) {
  std::unique_lock<std::mutex> lock(mutex_);
  Peer& peer = peers_[from];
  Inbox& inbox = peer.inboxes[static_cast<int>(channel)];
  const auto is_over = [&] {
    LoseIfMissing(peer);
    return !failed_.ok() || !inbox.frames.empty() || first_lost_ || inbox.ended || peer.lost;
  };
  const Clock::time_point begin = Clock::now();
  for (std::chrono::seconds tell_after = kTellAfter; !is_over();) {
    const Clock::time_point next = begin + std::min(deadline, tell_after);
    if (changed_.wait_until(lock, std::min(next, peer.connects_by), is_over)) break;
    if (Clock::now() < next) continue;
    if (deadline <= tell_after) {
      return absl::DeadlineExceededError(
          absl::StrCat(names_[worker_], " has waited ", deadline.count(), " s for ", NameLocked(from)));
    }
    if (log_) log_(absl::StrCat("has waited ", tell_after.count(), " s for ", NameLocked(from)));
    tell_after *= 2;
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

absl::StatusOr<Mailbox::Returned> Mailbox::WaitForReturn(int worker, std::chrono::milliseconds deadline) {
  std::unique_lock<std::mutex> lock(mutex_);
  const bool in_time =
      changed_.wait_for(lock, deadline, [&] { return !failed_.ok() || first_lost_ || returned_.count(worker) > 0; });
  if (!failed_.ok() || first_lost_) return ErrorOf(first_lost_.value_or(worker), lock);
  if (!in_time) return absl::DeadlineExceededError(absl::StrCat(NameLocked(worker), " has not come back"));
  const auto returned = returned_.find(worker);
  Peer& peer = peers_[worker] = std::move(returned->second);
  returned_.erase(returned);
  changed_.notify_all();
  return Returned{.process = {worker, peer.incarnation}, .address = peer.address};
}

}  // namespace official::distribute
