// A call: the messages that a client and a server that runs tasks for it send each other.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "utils/distribute/grpc/connect_options.h"

namespace official::distribute {

// A message is a list of strings, of 256 KiB together. Both sides know the same secret, and messages that were changed,
// repeated or left out on the way end the call. A side that is silent for ConnectOptions::peer_timeout is lost.
class Call {
 public:
  // What was sent leaves this process before, if the other side takes it within some seconds.
  virtual ~Call() = default;
  // Sends a message, after those that were sent before. It does not wait. Once the other side is lost, has ended the
  // call or refuses it: the error that Receive returns.
  virtual absl::Status Send(const std::vector<std::string>& message) = 0;
  // Returns true if the other side takes messages more slowly than they are sent: it is better to wait.
  virtual bool IsFull() = 0;
  // Returns the next message; DeadlineExceeded if there is none in time. Unavailable, with the reason, if the other
  // side is lost or has ended the call; AlreadyExists if it has another client, InvalidArgument if it refuses this one.
  virtual absl::StatusOr<std::vector<std::string>> Receive(std::chrono::milliseconds timeout) = 0;
};

// Takes the calls of clients, one at a time: a client that calls during another's call is refused.
class CallServer {
 public:
  virtual ~CallServer() = default;
  // Returns the next call, of a client that knows the secret; null if there is none in time. The call before it must
  // have ended.
  virtual std::unique_ptr<Call> Accept(std::chrono::milliseconds timeout) = 0;
};

// What a client needs to call the server of a task.
struct CallOptions {
  std::string name;                // of the server in messages: "the server of worker 1"
  std::string address;             // where it listens
  ConnectOptions connect;          // of which the secret, the certificates, the timeouts and the log count
  std::function<bool()> gives_up;  // true: it is not worth waiting for the server any more
};

}  // namespace official::distribute
