// Mailbox: what other workers have sent to this one and it has not received yet, and what has become of them.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "utils/distribute/exchange.h"

namespace official::distribute {

// This is safe for use by several threads.
class Mailbox {
 public:
  // `addresses` of the workers, for messages.
  Mailbox(int worker, std::vector<std::string> addresses) : worker_(worker), addresses_(std::move(addresses)) {}

  // Where the workers listen, once that is known of all.
  void SetAddresses(std::vector<std::string> addresses);

  void Put(int from, Exchange::Channel channel, std::string frame);
  // Worker `from` sends nothing more, since it has ended.
  void SetEnded(int from);
  // The connection with the worker is broken.
  void SetLost(int from, absl::string_view why);
  // A worker has failed, this one or another: all waits end. Returns false if that is known already.
  bool SetFailed(int who, absl::string_view reason);

  // Returns true if the worker wants nothing more: it has ended, or is lost.
  bool IsGone(int worker);

  // See Exchange::Receive. A worker that is lost, or has ended, is Cancelled with what is known of it; that it has
  // failed before, and why, may come a little later, and is waited for.
  absl::StatusOr<std::string> Receive(int from, Exchange::Channel channel, std::chrono::seconds deadline);
  // Returns OK, or the error that Receive would return for a worker from which nothing has come.
  absl::Status StateOf(int worker);

 private:
  using Clock = std::chrono::steady_clock;
  struct Peer {
    bool ended = false;
    std::optional<std::string> lost;  // why
    std::deque<std::string> frames[2];
  };
  // Waits for the reason of a peer's loss or end, and returns it as an error; OK if the peer is there.
  absl::Status ErrorOf(int worker, std::unique_lock<std::mutex>& lock);
  std::string NameOf(int worker) const;

  const int worker_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> addresses_;
  std::map<int, Peer> peers_;
  absl::Status failed_;
};

}  // namespace official::distribute
