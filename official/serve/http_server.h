// HttpServer: HTTP/1.1 on one thread, with a bound on all that clients can make it keep. If memory runs out, the client
// concerned is answered 503 or disconnected.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace official::serve {

struct HttpRequest {
  std::string method, target, body;
};

struct HttpResponse {
  int status = 200;
  std::string body;        // JSON
  std::string allow = "";  // the methods that a 405 names
};

struct HttpOptions {
  std::string host = "127.0.0.1";  // an IP address
  int port = 0;                    // 0: any free one
  // A client beyond that waits until another one has left.
  size_t max_connections = 256;
  size_t max_header_bytes = 16 << 10;  // with the request line
  size_t max_body_bytes = 16 << 20;
  // The bodies that are read, waited for or answered at a time; a request that would exceed this is answered 503. One
  // in chunks counts as max_body_bytes until it is read.
  size_t max_total_bytes = 256 << 20;
  // A connection is closed if its next request has not come in this time, from the first byte to the last, or its
  // response has not gone. So a client that sends a byte now and then holds it no longer than another. A request that
  // the handler has not answered in this time is answered 504.
  std::chrono::milliseconds timeout{30000};
};

// Makes a response with the message as its JSON body: {"error": "..."}.
HttpResponse ErrorTo(int status, const std::string& message);

class HttpServer {
 public:
  using Done = std::function<void(HttpResponse)>;
  // Answers a request by calling `done` once, from any thread, now or later; after options.timeout the call has no
  // effect. It is called by the thread of Run, and must not keep that for long.
  using Handler = std::function<void(HttpRequest, Done done)>;

  // Begins to listen, also to the signals that end Run: one that comes before ends it when it begins. AlreadyExists if
  // the port is in use, PermissionDenied if this user may not take it, InvalidArgument for a host that is no address of
  // this machine.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Listen(const HttpOptions& options, Handler handler);
  virtual ~HttpServer() = default;

  virtual int port() const = 0;

  struct End {
    int signal = 0;
    // The requests that had begun to arrive and have no answer: their clients have left, or the time is over.
    size_t num_unanswered = 0;
  };
  // Serves until a SIGTERM, SIGINT or SIGUSR1, calls `stopping`, and answers the requests that have begun to arrive,
  // for little more than options.timeout. A second SIGINT ends the process. After the return signals have their default
  // effect.
  virtual End Run(const std::function<void()>& stopping) = 0;
  // Ends Run as a signal does, from any thread; End::signal is then 0.
  virtual void Stop() = 0;
};

}  // namespace official::serve
