// The door of a worker's server: accepts connections, hands them to gRPC, and closes those that do not prove soon that
// they are a worker's. gRPC itself has no bound on how many there are, how long they last and what they send before.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "utils/distribute/grpc/refusals.h"

namespace official::distribute {

class Acceptor {
 public:
  // A connection has to prove within that time what it is, and sends no more bytes before.
  static constexpr std::chrono::seconds kProveWithin{10};
  static constexpr uint64_t kMostBytes = 256 << 10;
  // So many may be unproven at once, beside those of all workers, which come at the same time when a run starts.
  static constexpr size_t kMostStrangers = 128;

  // Listens at an address of a run with so many workers. Connections break when what was sent is not acknowledged for
  // `peer_timeout`. Unavailable with what the system says. `refusals` must outlive the result.
  static absl::StatusOr<std::unique_ptr<Acceptor>> Listen(const std::string& address, size_t num_workers,
                                                          std::chrono::seconds peer_timeout, Refusals& refusals);
  ~Acceptor();

  int port() const { return port_; }
  // Calls `take` with each connection from now on, on a thread of its own. It owns the descriptor that it gets.
  // Connections whose other end has closed them by then are closed and do not count as refusals.
  void Start(std::function<void(int fd)> take);
  // Accepts and closes nothing more. `take` is not called after this.
  void Stop();
  // The connection from `peer`, "10.0.0.7:4000", is a worker's: it may stay, and send as much as it likes.
  void SetProven(const std::string& peer);
  // Counts a call of `peer` that is refused. The end of its connection does not count then.
  void CountRefusal(Refusals::Reason reason, const std::string& peer);

 private:
  using Clock = std::chrono::steady_clock;
  struct Unproven {
    uint64_t id;
    std::string peer;
    int fd;  // a second descriptor of the connection, the first is gRPC's
    Clock::time_point deadline;
    bool counted = false;  // as a refusal
  };
  using Place = std::list<Unproven>::iterator;

  Acceptor(std::vector<int> listeners, size_t num_workers, Refusals& refusals);
  void Run();
  void Accept(int listener);
  void TakeEnd(uint64_t id);
  // Closes the connections that have had their time, or have sent too much.
  void CloseExceeding();
  int MillisecondsUntilCheck();
  Place Find(const std::string& peer);
  // Ends a connection, also for gRPC.
  void Refuse(Place place, Refusals::Reason reason);
  void Forget(Place place);
  // `id` is what tells its events from others: the descriptor itself for a socket that listens.
  void Watch(int fd, uint64_t id, uint32_t events);

  const std::vector<int> listeners_;
  const int port_;
  const size_t most_unproven_;
  Refusals& refusals_;
  const int epoll_, stop_;
  std::function<void(int fd)> take_;
  std::mutex mutex_;
  std::list<Unproven> unproven_;  // the oldest first
  // A descriptor's number is given again while events of the connection that had it may be waiting.
  uint64_t next_id_ = uint64_t{1} << 32;
  std::thread thread_;
};

}  // namespace official::distribute
