// ParameterServers: the tasks of a job with parameter servers, and how they talk. A worker, of which the first is the
// chief, asks all servers at the same time; each server answers the workers on a thread for each. The bytes mean
// something to the callers only. The tasks of the exchange are the workers, then the servers.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "utils/distribute/exchange.h"

namespace official::distribute {

class ParameterServers {
 public:
  // `exchange` must outlive this. A server that does not answer for `timeout` is an error of the worker that asks.
  ParameterServers(Exchange& exchange, int num_servers, std::chrono::seconds timeout);

  int num_servers() const { return num_servers_; }
  int num_workers() const { return exchange_.num_workers() - num_servers_; }
  // Returns the number of this server, from 0; nothing in a worker.
  std::optional<int> server() const;
  // Returns the number of this worker, from 0, which is that of the chief.
  int worker() const { return exchange_.worker(); }
  bool is_chief() const { return exchange_.worker() == 0; }
  std::chrono::seconds timeout() const { return timeout_; }
  Exchange& exchange() const { return exchange_; }

  // A request is made of parts, which follow one another.
  using Request = std::vector<absl::string_view>;
  // Sends each server its request and returns their answers, by server. One without any part is not sent, and
  // has an empty answer. Returns the error of a server's answer; DeadlineExceeded or Cancelled, which name the server,
  // as Exchange::Receive.
  absl::StatusOr<std::vector<std::string>> Ask(const std::vector<Request>& requests);

  // Tells all servers that this worker asks nothing more, and, unless it is the chief, tells the chief.
  absl::Status Leave();
  // Waits a second for a worker to leave, and returns true if it has left or is lost, and is not back. For the chief.
  absl::StatusOr<bool> HasLeft(int worker);
  // True if the worker, which has left as HasLeft says, was lost and has not come back since.
  bool WasLost(int worker) const { return lost_.count(worker) > 0; }
  // Ends the job when all other workers have left, those that come back meanwhile, too. `wait` waits for a worker to
  // leave, and returns false to give up: then so does this. For the chief.
  absl::StatusOr<bool> FinishAfterWorkers(absl::FunctionRef<absl::StatusOr<bool>(int worker)> wait);
  // Returns "worker 1 at 10.0.0.1:2222".
  std::string NameOf(int worker) const { return exchange_.NameOf(worker); }

  // What answers the requests of workers. Several threads may call it at the same time.
  class Answerer {
   public:
    virtual ~Answerer() = default;
    // Answers a request that is not empty.
    virtual absl::StatusOr<std::string> Answer(int worker, std::string request) = 0;
    // The worker has left or is lost. It may come back.
    virtual void Leave(int worker) = 0;
  };
  // Answers the requests of all workers until the chief has left and all others have left or are lost. Goes on without
  // another worker that is lost, also when it comes back, and logs both. Calls ask_stop() every 100 ms: true fails the
  // job, Cancelled. Other errors: those of Exchange::Receive.
  absl::Status Serve(Answerer& answerer, absl::FunctionRef<bool()> ask_stop);

 private:
  class Presence;
  // Answers one process of a worker, until it has left or is lost.
  absl::Status ServeProcess(int worker, Answerer& answerer);
  // Answers each process of a worker, until all workers have left.
  absl::Status ServeWorker(int worker, Answerer& answerer, Presence& presence);

  Exchange& exchange_;
  const int num_servers_;
  const std::chrono::seconds timeout_;
  // The error after which an answer may still be under way, which a later request must not take for its own.
  absl::Status broken_;
  std::set<int> left_, lost_;  // workers that have left or are lost, and those of them that are, as the chief knows
};

}  // namespace official::distribute
