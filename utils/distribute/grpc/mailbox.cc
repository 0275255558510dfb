#include "utils/distribute/grpc/mailbox.h"

#include "absl/strings/str_cat.h"

namespace official::distribute {
namespace {

// The message of a worker that fails may come a little after the end of another one's connection.
constexpr std::chrono::milliseconds kReasonTakes(300);

}  // namespace

std::string Mailbox::NameOf(int worker) const { return absl::StrCat("worker ", worker, " at ", addresses_[worker]); }

void Mailbox::SetAddresses(std::vector<std::string> addresses) {
  const std::lock_guard<std::mutex> lock(mutex_);
  addresses_ = std::move(addresses);
}

void Mailbox::Put(int from, Exchange::Channel channel, std::string frame) {
  const std::lock_guard<std::mutex> lock(mutex_);
  peers_[from].frames[static_cast<int>(channel)].push_back(std::move(frame));
  changed_.notify_all();
}

void Mailbox::SetEnded(int from) {
  const std::lock_guard<std::mutex> lock(mutex_);
  peers_[from].ended = true;
  changed_.notify_all();
}

void Mailbox::SetLost(int from, absl::string_view why) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Peer& peer = peers_[from];
  if (!peer.ended && !peer.lost) peer.lost = std::string(why);
  changed_.notify_all();
}

bool Mailbox::SetFailed(int who, absl::string_view reason) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!failed_.ok()) return false;
  failed_ = absl::CancelledError(absl::StrCat("worker ", who, " has failed", reason.empty() ? "" : ": ", reason));
  changed_.notify_all();
  return true;
}

bool Mailbox::IsGone(int worker) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const Peer& peer = peers_[worker];
  return peer.ended || peer.lost;
}

absl::Status Mailbox::ErrorOf(int worker, std::unique_lock<std::mutex>& lock) {
  const Peer& peer = peers_[worker];
  if (failed_.ok() && !peer.lost && !peer.ended) return absl::OkStatus();
  if (failed_.ok()) changed_.wait_for(lock, kReasonTakes, [this] { return !failed_.ok(); });
  if (!failed_.ok()) return failed_;
  if (!peer.lost) return absl::CancelledError(absl::StrCat(NameOf(worker), " has ended its run"));
  return absl::CancelledError(absl::StrCat(NameOf(worker), " was lost (", *peer.lost,
                                           "); start all workers again, they continue from the last checkpoint"));
}

absl::Status Mailbox::StateOf(int worker) {
  std::unique_lock<std::mutex> lock(mutex_);
  return ErrorOf(worker, lock);
}

absl::StatusOr<std::string> Mailbox::Receive(int from, Exchange::Channel channel, std::chrono::seconds deadline) {
  std::unique_lock<std::mutex> lock(mutex_);
  Peer& peer = peers_[from];
  std::deque<std::string>& frames = peer.frames[static_cast<int>(channel)];
  const bool in_time =
      changed_.wait_for(lock, deadline, [&] { return !failed_.ok() || !frames.empty() || peer.lost || peer.ended; });
  if (!in_time) {
    return absl::DeadlineExceededError(
        absl::StrCat("worker ", worker_, " has waited ", deadline.count(), " s for ", NameOf(from)));
  }
  if (frames.empty()) {
    const absl::Status error = ErrorOf(from, lock);
    if (frames.empty()) return error;
  }
  std::string frame = std::move(frames.front());
  frames.pop_front();
  return frame;
}

}  // namespace official::distribute
