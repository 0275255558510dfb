// Mailbox: what other workers have sent to this one and it has not received yet, and what has become of them.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
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

  // A stream of frames of a process begins, which listens at an address. Where that is a newer process of a worker
  // without which the job goes on, the older ones are lost and what they have sent is dropped, now and later. Returns
  // false if the process does not count: a newer one is there, or it is lost.
  bool Admit(Process from, const std::string& address);
  // Lets a new process of such a worker take part, which is to connect within the peer timeout, and returns its
  // incarnation; nothing if the one before is not gone.
  std::optional<int> TakeBack(int worker, const std::string& address);

  // What follows means nothing for a process that does not count. Put returns false then.
  bool Put(Process from, Exchange::Channel channel, std::string frame);
  // The process, which has ended, sends nothing more on the channel. Its frames on the other may be under way yet.
  void SetEnded(Process from, Exchange::Channel channel);
  // A connection with it is broken. Means nothing if it has ended on all channels.
  void SetLost(Process from, absl::string_view why);
  // `f` is called once, when SetFailed ends all waits here, for the waits elsewhere. To be set before that can be.
  void SetOnFailed(std::function<void()> f);
  // A worker has failed, this one or another: all waits end, unless the job goes on without it. Returns false if that
  // is known already.
  bool SetFailed(Process who, const Failure& failure);

  // Returns true if the newest process of the worker wants nothing more: it has ended, or is lost.
  bool IsGone(int worker);
  // Returns the workers that are lost to this one, or to one that has failed for that.
  std::vector<int> Lost();
  // Returns the first one that was lost to this one, if there is one.
  std::optional<int> FirstLost();

  // See Exchange::Receive. A worker that is lost, whichever it is, or has ended, is Cancelled with what is known of it;
  // that it has failed before, and why, may come a little later, and is waited for. One without which the job goes on
  // is Unavailable, and ends only the waits for itself. A long wait is logged.
  absl::StatusOr<std::string> Receive(int from, Exchange::Channel channel, std::chrono::seconds deadline);
  // See Exchange::WaitForReturn. Returns the process that Receive is for from now on, and where it listens.
  struct Returned {
    Process process;
    std::string address;
  };
  absl::StatusOr<Returned> WaitForReturn(int worker, std::chrono::milliseconds deadline);
  // Returns OK, or the error that Receive would return for a worker from which nothing has come. OK if the job goes on
  // without this worker.
  absl::Status StateOf(int worker);
  // The same, but one that has ended in order is no error: it owes nothing that Receive would not tell.
  absl::Status CheckOf(int worker);

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr Clock::time_point kEver = Clock::time_point::max();
  struct Inbox {
    std::deque<std::string> frames;
    bool ended = false;
  };
  // A process of a worker.
  struct Peer {
    int incarnation = 0;
    std::string address;                    // of a new process
    std::optional<std::string> lost;        // why
    std::string failure;                    // why it has failed, of one without which the job goes on
    Inbox inboxes[2];                       // by channel
    Clock::time_point connects_by = kEver;  // it is lost if it does not
    bool has_ended() const { return inboxes[0].ended || inboxes[1].ended; }
    bool is_gone() const { return has_ended() || lost; }
  };
  Peer& Newest(int worker);
  // Returns the process, if it counts; else null.
  Peer* Find(Process process);
  // Begins to count a new process instead of the one before.
  Peer& Begin(Process process, const std::string& address);
  static void LoseIfMissing(Peer& peer);
  // Waits for the reason of a peer's loss or end, and returns it as an error; OK if the peer is there.
  absl::Status ErrorOf(int worker, std::unique_lock<std::mutex>& lock);
  std::string NameLocked(int worker) const;

  bool IsDispensable(int worker) const { return dispensable_[worker]; }

  const int worker_;
  std::vector<std::string> names_;  // by worker
  std::vector<bool> dispensable_;   // by worker
  const std::string advice_;        // once a worker is lost
  const std::chrono::seconds peer_timeout_;
  const std::function<void(const std::string& line)> log_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> addresses_;
  std::map<int, Peer> peers_;     // the processes that Receive is for, by worker
  std::map<int, Peer> returned_;  // newer ones, until WaitForReturn
  std::optional<int> first_lost_;
  std::set<int> told_lost_;  // by workers that have failed
  std::function<void()> on_failed_;
  absl::Status failed_;
};

}  // namespace official::distribute
