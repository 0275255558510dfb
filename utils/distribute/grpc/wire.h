// What workers send each other over gRPC: streams of messages, of which each begins with its kind. Nothing that comes
// from the network is trusted.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "utils/distribute/exchange.h"

namespace official::distribute {

// Bytes of a frame in one message.
inline constexpr size_t kPieceBytes = 512 << 10;
// Frames that are longer are refused.
inline constexpr uint64_t kMostFrameBytes = uint64_t{1} << 34;

// The methods that a worker serves.
inline constexpr char kJoinMethod[] = "/official.Workers/Join", kFramesMethod[] = "/official.Workers/Frames";
// The method of a server that runs tasks for a client.
inline constexpr char kCallMethod[] = "/official.Server/Call";

// Returns the strings as one message, and the strings of such a message; InvalidArgument if it is none.
std::string PackStrings(const std::vector<std::string>& strings);
absl::StatusOr<std::vector<std::string>> UnpackStrings(absl::string_view message);

// Returns 32 random bytes.
std::string RandomBytes();
// Returns HMAC-SHA256 of the parts, with their lengths, under the key.
std::string Proof(absl::string_view key, const std::vector<std::string>& parts);
// Returns true if both are the same, in a time that does not depend on where they differ.
bool SameProof(absl::string_view a, absl::string_view b);

// A process of a worker. Those that are started for it in one job, one after the other, have ascending incarnations.
struct Process {
  Process(int worker, int incarnation = 0) : worker(worker), incarnation(incarnation) {}
  int worker, incarnation;
};

// The first message of a stream of frames.
struct FramesHello {
  Process from = 0, to = 0;
  Exchange::Channel channel = Exchange::Channel::kSums;
  std::string address = {};  // where `from` listens
};
// `key` is that of the job. InvalidArgument if the message is none, or was made with another key.
std::string PackHello(const FramesHello& hello, absl::string_view key);
absl::StatusOr<FramesHello> UnpackHello(absl::string_view message, absl::string_view key);

// The messages that follow.
std::string FrameHead(uint64_t bytes);  // before the first piece of a frame of so many bytes
inline constexpr char kPieceKind = 'P', kFrameKind = 'F', kEndKind = 'E';
// The number of no worker.
inline constexpr int kNobody = -1;

// The last message of a worker that has failed, since `lost` is lost to it or, with kNobody, another one has ended its
// run, or for a reason of its own.
struct Failure {
  std::string reason;
  std::optional<int> lost = {};
};
std::string PackFailure(const Failure& failure);
inline constexpr char kFailKind = 'X', kLostKind = 'L';  // which it begins with

// Puts the messages of a stream together to frames.
class FrameReader {
 public:
  struct Result {
    std::optional<std::string> frame;  // that is complete now
    bool ends = false;                 // the worker will send nothing more
    std::optional<Failure> failure;    // the worker has failed
  };
  // Takes a message, of which the parts follow one another. InvalidArgument for one that cannot be there.
  absl::StatusOr<Result> Take(absl::Span<const absl::string_view> parts);

 private:
  absl::Status TakePiece(absl::Span<const absl::string_view> parts);
  absl::Status TakeHead(absl::string_view message);

  std::string frame_;
  std::optional<uint64_t> bytes_;  // of the frame, of which a part is still to come
};

}  // namespace official::distribute
