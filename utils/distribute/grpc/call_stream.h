// CallStream: what both ends of a call share, the queues between gRPC's callbacks and the threads that use the call.
#pragma once

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "utils/distribute/grpc/call.h"
#include "utils/distribute/grpc/server.h"
#include "utils/distribute/grpc/wire.h"

namespace official::distribute {

// `Reactor` is gRPC's for one end of a stream of bytes in both directions.
template <typename Reactor>
class CallStream : public Reactor {
 public:
  // Sends the bytes of a message; why the stream has ended if it has.
  absl::Status Send(absl::string_view bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (ended_) return end_;
    if (closed_) return absl::OkStatus();  // Receive tells why, in a moment
    to_send_.push_back(MessageOf(bytes));
    WriteNext();
    return absl::OkStatus();
  }
  bool IsFull() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return !closed_ && to_send_.size() >= kMostWaiting;
  }
  absl::StatusOr<std::string> Receive(std::chrono::milliseconds timeout) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait_for(lock, timeout, [this] { return ended_ || !received_.empty(); });
    if (received_.empty()) return ended_ ? end_ : absl::DeadlineExceededError("no message has come");
    std::string message = std::move(received_.front());
    received_.pop_front();
    if (std::exchange(paused_, false) && !closed_) ReadNext();
    return message;
  }
  // Waits until what was sent has left, or the stream has ended.
  void Flush(std::chrono::milliseconds timeout) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait_for(lock, timeout, [this] { return closed_ || to_send_.empty(); });
  }

  void OnWriteDone(bool ok) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    writing_ = false;
    to_send_.pop_front();
    if (ok) WriteNext();
    if (!ok) closed_ = true;
    Advance();
    changed_.notify_all();
  }

 protected:
  // More messages are not read, and IsFull() is true.
  static constexpr size_t kMostWaiting = 64;

  // Called after each event: ends the stream when that is due. Holds the mutex.
  virtual void Advance() = 0;

  // These need the mutex.
  void ReadNext() {
    read_.Clear();
    this->StartRead(&read_);
  }
  void WriteNext() {
    if (writing_ || closed_ || to_send_.empty()) return;
    writing_ = true;
    this->StartWrite(&to_send_.front());
  }
  void TakeMessage() {
    received_.push_back(TextOf(read_));
    paused_ = received_.size() >= kMostWaiting;
    if (!paused_) ReadNext();
    changed_.notify_all();
  }
  void SetEnded(absl::Status why) {
    closed_ = true;
    if (!std::exchange(ended_, true)) end_ = std::move(why);
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  grpc::ByteBuffer read_;
  std::deque<grpc::ByteBuffer> to_send_;  // the first one is being written
  std::deque<std::string> received_;
  bool writing_ = false, paused_ = false;  // paused: nothing is being read
  bool closed_ = false;                    // no operation may be started any more
  bool ended_ = false;                     // for `end_`, which is known now
  absl::Status end_;
};

// What a stranger cannot make, and nobody change or repeat: messages with their number and a proof under the call's
// key.
class Seal {
 public:
  explicit Seal(std::string key, std::string sender) : key_(std::move(key)), sender_(std::move(sender)) {}
  std::string Close(const std::vector<std::string>& message) {
    std::string packed = PackStrings(message);
    const std::string proof = Next(packed);
    return PackStrings({std::move(packed), proof});
  }
  // InvalidArgument for what is not the next message.
  absl::StatusOr<std::vector<std::string>> Open(absl::string_view bytes) {
    const absl::StatusOr<std::vector<std::string>> parts = UnpackStrings(bytes);
    if (!parts.ok() || parts->size() != 2 || !SameProof((*parts)[1], Next((*parts)[0]))) {
      return absl::InvalidArgumentError("a message was changed on the way");
    }
    return UnpackStrings((*parts)[0]);
  }

 private:
  std::string Next(const std::string& packed) { return Proof(key_, {sender_, std::to_string(number_++), packed}); }
  const std::string key_, sender_;
  uint64_t number_ = 0;
};

// The beginning of a call: both sides prove that they know the secret, for random numbers of both.
inline constexpr char kCallProtocol[] = "official server 1";
inline std::string ServerProof(const std::string& secret, const std::string& server_nonce, const std::string& nonce) {
  return Proof(secret, {"server", server_nonce, nonce});
}
inline std::string ClientProof(const std::string& secret, const std::string& server_nonce, const std::string& nonce) {
  return Proof(secret, {"client", server_nonce, nonce});
}
inline std::string CallKey(const std::string& secret, const std::string& server_nonce, const std::string& nonce) {
  return Proof(secret, {"call", server_nonce, nonce});
}

// A call over a stream whose beginning is over.
template <typename Stream>
class SealedCall : public Call {
 public:
  SealedCall(std::shared_ptr<Stream> stream, const std::string& key, const std::string& own, const std::string& other)
      : stream_(std::move(stream)), sent_(key, own), received_(key, other) {}
  ~SealedCall() override {
    constexpr std::chrono::seconds kMostWait(5);
    stream_->Flush(kMostWait);
    stream_->Close();
  }
  absl::Status Send(const std::vector<std::string>& message) override { return stream_->Send(sent_.Close(message)); }
  bool IsFull() override { return stream_->IsFull(); }
  absl::StatusOr<std::vector<std::string>> Receive(std::chrono::milliseconds timeout) override {
    absl::StatusOr<std::string> bytes = stream_->Receive(timeout);
    if (!bytes.ok()) return bytes.status();
    absl::StatusOr<std::vector<std::string>> message = received_.Open(*bytes);
    if (!message.ok()) return absl::UnavailableError(message.status().message());
    return message;
  }

 private:
  const std::shared_ptr<Stream> stream_;
  Seal sent_, received_;
};

}  // namespace official::distribute
