// Mailbox: what other workers have sent to this one and it has not received yet, and what has become of them.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "utils/distribute/exchange.h"
#include "utils/distribute/grpc/connect_options.h"
#include "utils/distribute/grpc/wire.h"

namespace official::distribute {

// Workers have the numbers here that the cluster gives them. This is safe for use by several threads.
class Mailbox {
 public:
  explicit Mailbox(const ConnectOptions& options);

  // Where a worker listens, once that is known.
  void SetAddress(int worker, const std::string& address);
  // Returns "worker 2 at 10.0.0.1:2222".
  std::string NameOf(int worker);

  void Put(int from, Exchange::Channel channel, std::string frame);
  // Worker `from`, which has ended, sends nothing more on the channel. Its frames on the other may be under way yet.
  void SetEnded(int from, Exchange::Channel channel);
  // A connection with the worker is broken. Means nothing if it has ended on all channels.
  void SetLost(int from, absl::string_view why);
  // A worker has failed, this one or another: all waits end, unless the job goes on without it. Returns false if that
  // is known already.
  bool SetFailed(int who, const Failure& failure);

  // Returns true if the worker wants nothing more: it has ended, or is lost.
  bool IsGone(int worker);
  // Returns the workers that are lost to this one, or to one that has failed for that.
  std::vector<int> Lost();
  // Returns the first one that was lost to this one, if there is one.
  std::optional<int> FirstLost();

  // See Exchange::Receive. A worker that is lost, whichever it is, or has ended, is Cancelled with what is known of it;
  // that it has failed before, and why, may come a little later, and is waited for. One without which the job goes on
  // is Unavailable, and ends only the waits for itself. A long wait is logged.
  absl::StatusOr<std::string> Receive(int from, Exchange::Channel channel, std::chrono::seconds deadline);
  // Returns OK, or the error that Receive would return for a worker from which nothing has come. OK if the job goes on
  // without this worker.
  absl::Status StateOf(int worker);

 private:
  using Clock = std::chrono::steady_clock;
  struct Inbox {
    std::deque<std::string> frames;
    bool ended = false;
  };
  struct Peer {
    std::optional<std::string> lost;  // why
    std::string failure;              // why it has failed, of one without which the job goes on
    Inbox inboxes[2];                 // by channel
    bool has_ended() const { return inboxes[0].ended || inboxes[1].ended; }
  };
  // Waits for the reason of a peer's loss or end, and returns it as an error; OK if the peer is there.
  absl::Status ErrorOf(int worker, std::unique_lock<std::mutex>& lock);
  std::string NameLocked(int worker) const;

  bool IsDispensable(int worker) const { return dispensable_[worker]; }

  const int worker_;
  std::vector<std::string> names_;  // by worker
  std::vector<bool> dispensable_;   // by worker
  const std::string advice_;        // once a worker is lost
  const std::function<void(const std::string& line)> log_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> addresses_;
  std::map<int, Peer> peers_;
  std::optional<int> first_lost_;
  std::set<int> told_lost_;  // by workers that have failed
  absl::Status failed_;
};

}  // namespace official::distribute
