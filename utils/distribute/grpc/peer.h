// The connection to another worker, on which this one sends.
#pragma once

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "utils/distribute/exchange.h"
#include "utils/distribute/grpc/connect_options.h"
#include "utils/distribute/grpc/wire.h"

namespace official::distribute {

// A connection of its own, which is not shared with other channels. It is made when it is first used.
std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address, const ConnectOptions& options);

// Waits a moment for the channel, which is to `name` ("worker 1") at `address`, to be connected. Unavailable, with the
// reason, if it is not yet; InvalidArgument, with that of the certificates, if it never will be.
absl::Status WaitUntilConnected(grpc::Channel& channel, const std::string& name, const std::string& address,
                                const ConnectOptions& options);

// Messages to one worker on one of the exchange's channels, in the order in which they are sent.
class Sender {
 public:
  // The most bytes of frames that wait to be sent, but for one message more: a sender of much to many processes does
  // not keep all of it in memory.
  static constexpr size_t kMostQueuedBytes = 64 << 20;

  // `hello` is the first message. `lost` is called, on a thread of gRPC, when the connection breaks.
  Sender(std::shared_ptr<grpc::Channel> channel, std::string hello, std::function<void(absl::string_view why)> lost);
  // Drops what has not arrived.
  ~Sender();

  // Copies the frame, of which the parts follow one another. Once the other side takes frames, waits while
  // kMostQueuedBytes have not left this process. What is sent after the last message is dropped.
  void SendFrame(absl::Span<const absl::string_view> parts);
  // The last message: this worker has failed.
  void SendFailure(const Failure& failure);
  // The last message: nothing comes after it.
  void SendEnd();
  // Ends the wait of SendFrame, also of another thread, now and later: what it has not queued yet of a frame is
  // dropped. What was queued, and the last message, still leave.
  void EndWaits();
  // Waits until all messages have left this process, or the deadline has passed.
  void Flush(std::chrono::steady_clock::time_point deadline);
  // Waits until the other side has taken the last message, or the connection has ended; false if it has not in `time`.
  bool WaitUntilTaken(std::chrono::milliseconds time);

 private:
  class Stream;
  std::shared_ptr<grpc::Channel> channel_;
  grpc::GenericStub stub_;
  std::unique_ptr<Stream> stream_;
};

// A worker that joins: sends `first`, gives the answer to `respond`, sends what that returns and returns the answer to
// it, all before `deadline`. Waits for a server that is not there yet, and calls `waiting` every ten seconds. Errors:
// DeadlineExceeded with the last reason, and what the server or `respond` says.
absl::StatusOr<std::string> CallJoin(const std::shared_ptr<grpc::Channel>& channel, const std::string& first,
                                     const std::function<absl::StatusOr<std::string>(const std::string&)>& respond,
                                     std::chrono::steady_clock::time_point deadline,
                                     const std::function<void()>& waiting);

}  // namespace official::distribute
