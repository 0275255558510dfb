// What the workers of a job need to find each other.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace official::distribute {

// The files of mutual TLS: a text in PEM, and its name in messages, "--tls_key=FILE".
struct TlsFile {
  std::string name, pem;
};
struct TlsFiles {
  TlsFile cert, key;  // of this worker; the certificate may be followed by those of authorities between it and `ca`
  TlsFile ca;         // the authorities that all workers' certificates are from
};

// A job that goes on without workers that are lost.
struct Elastic {
  int min_workers = 1;  // with fewer it does not begin
  // When it begins again, the workers that are still there: it waits for no others, and for these as long as for one
  // that is silent. Nothing at the first beginning, where it waits for all until the start times out.
  std::optional<std::vector<int>> expected = {};
};

struct ConnectOptions {
  int worker = 0;  // this one
  // The last so many of the addresses are parameter servers. With them the job goes on when a worker is lost or fails,
  // unless it is the first one, and begins without it after half of `start_timeout`. It may come, or come back, later.
  int num_servers = 0;
  // "host:port" by worker. Only that of worker 0 must be known; the others listen on a free port where there is none.
  std::vector<std::string> addresses;
  // The name and value of what must be the same on all workers, in the same order: {"flag --batch_size", "128"}.
  std::vector<std::pair<std::string, std::string>> facts;
  std::string secret;           // that they share; empty: it proves nothing
  std::optional<TlsFiles> tls;  // nothing: connections are not encrypted, and have no certificates
  bool bind_all = false;        // listens on all interfaces: its address need be none of this machine's
  std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();  // of the start
  std::chrono::seconds start_timeout = std::chrono::minutes(5);  // how long, from then on, workers wait for each other
  std::chrono::seconds peer_timeout = std::chrono::seconds(10);  // after which a silent worker is lost
  std::optional<Elastic> elastic = {};                           // nothing: all workers train, always
  std::function<void(const std::string& line)> log;              // gets lines about long waits; may be empty
};

// Returns "worker 1", or "ps 0" for the first parameter server.
inline std::string TaskName(const ConnectOptions& options, int worker) {
  const int first_server = static_cast<int>(options.addresses.size()) - options.num_servers;
  return worker < first_server ? "worker " + std::to_string(worker) : "ps " + std::to_string(worker - first_server);
}

// Returns what is left of the start timeout, at least 0.
inline std::chrono::milliseconds StartTimeLeft(const ConnectOptions& options) {
  const auto left = options.begin + options.start_timeout - std::chrono::steady_clock::now();
  return std::max(std::chrono::duration_cast<std::chrono::milliseconds>(left), std::chrono::milliseconds(0));
}

// Returns the timeout for gRPC and sockets, which take an int of milliseconds: at most 24 days.
inline int TimeoutMilliseconds(std::chrono::seconds timeout) {
  constexpr std::chrono::milliseconds kMost(std::numeric_limits<int>::max());
  return static_cast<int>(std::min<std::chrono::milliseconds>(timeout, kMost).count());
}

// Returns true if the job goes on without this one.
inline bool IsDispensable(const ConnectOptions& options, int worker) {
  const int first_server = static_cast<int>(options.addresses.size()) - options.num_servers;
  return options.num_servers > 0 && worker > 0 && worker < first_server;
}

}  // namespace official::distribute
