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

  // Sends each server its request, none of which is empty, and returns their answers, by server. Returns the error of a
  // server's answer; DeadlineExceeded or Cancelled, which name the server, as Exchange::Receive.
  absl::StatusOr<std::vector<std::string>> Ask(const std::vector<std::string>& requests);

  // Tells all servers that this worker asks nothing more, and, unless it is the chief, tells the chief.
  absl::Status Leave();
  // Waits a second for a worker to leave, and returns true if it has left or is lost, and is not back. For the chief.
  absl::StatusOr<bool> HasLeft(int worker);
  // Returns "worker 1 at 10.0.0.1:2222".
  std::string NameOf(int worker) const { return exchange_.NameOf(worker); }

  // Answers the requests of all workers with answer(), which several threads may call at the same time, until the chief
  // has left and all others have left or are lost. Goes on without another worker that is lost, also when it comes
  // back, and logs both. Calls ask_stop() every 100 ms: true fails the job, Cancelled. Other errors: those of
  // Exchange::Receive.
  absl::Status Serve(const std::function<absl::StatusOr<std::string>(absl::string_view request)>& answer,
                     absl::FunctionRef<bool()> ask_stop);

 private:
  class Presence;
  // Answers one process of a worker, until it has left or is lost.
  absl::Status ServeProcess(int worker,
                            const std::function<absl::StatusOr<std::string>(absl::string_view request)>& answer);
  // Answers each process of a worker, until all workers have left.
  absl::Status ServeWorker(int worker,
                           const std::function<absl::StatusOr<std::string>(absl::string_view request)>& answer,
                           Presence& presence);

  Exchange& exchange_;
  const int num_servers_;
  const std::chrono::seconds timeout_;
  std::set<int> left_;  // workers that have left or are lost, as the chief knows
};

}  // namespace official::distribute
