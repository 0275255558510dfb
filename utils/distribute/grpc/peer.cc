#include "utils/distribute/grpc/peer.h"

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "utils/compute/core/status.h"
#include "utils/distribute/grpc/credentials.h"
#include "utils/distribute/grpc/server.h"

namespace official::distribute {
namespace {

using Clock = std::chrono::steady_clock;

// The same moment as gRPC takes it, by the wall clock. To be used at once: that clock may be set.
std::chrono::system_clock::time_point OnWallClock(Clock::time_point time) {
  using WallClock = std::chrono::system_clock;
  if (time == Clock::time_point::max()) return WallClock::time_point::max();
  return WallClock::now() + std::chrono::duration_cast<WallClock::duration>(time - Clock::now());
}

}  // namespace

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address, const ConnectOptions& options) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);  // workers are not outside
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 1000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, TimeoutMilliseconds(options.peer_timeout));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // A worker that is not there yet is tried again soon.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 20);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  // A name may first stand for where nobody is any more.
  arguments.SetInt(GRPC_ARG_DNS_MIN_TIME_BETWEEN_RESOLUTIONS_MS, 1000);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, 1 << 20);
  arguments.SetInt("grpc.http2.lookahead_bytes", 16 << 20);
  arguments.SetInt("grpc.tcp_read_chunk_size", 1 << 20);
  return grpc::CreateCustomChannel(address, ChannelCredentialsOf(options.tls), arguments);
}

absl::Status WaitUntilConnected(grpc::Channel& channel, const std::string& name, const std::string& address,
                                const ConnectOptions& options) {
  const auto is_ready_within = [&channel](std::chrono::milliseconds time) {
    const Clock::time_point end = Clock::now() + time;
    for (;;) {
      const grpc_connectivity_state state = channel.GetState(/*try_to_connect=*/true);
      if (state == GRPC_CHANNEL_READY) return true;
      if (!channel.WaitForStateChange(state, OnWallClock(end))) return false;
    }
  };
  if (is_ready_within(std::chrono::milliseconds(500))) return absl::OkStatus();
  if (!options.tls) return absl::UnavailableError("");
  // The other worker may have come between two attempts of gRPC. It would count ours as a stranger's.
  grpc::experimental::ChannelResetConnectionBackoff(&channel);
  if (is_ready_within(std::chrono::milliseconds(100))) return absl::OkStatus();
  return WhyNoConnection(name, address, options.tls);
}

class Sender::Stream : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  explicit Stream(std::function<void(absl::string_view why)> lost) : lost_(std::move(lost)) {}

  void Start(grpc::GenericStub& stub) {
    context_.set_wait_for_ready(true);
    stub.PrepareBidiStreamingCall(&context_, kFramesMethod, grpc::StubOptions(), this);
    AddHold();            // until no more is sent
    StartRead(&answer_);  // nothing comes, but the end of the stream is seen where nothing is being written
    StartCall();
  }

  // The last message ends the stream. Another one waits until there is room for it: the other side takes in what comes
  // whatever it does meanwhile, also where it waits to send as this one does, and counts as lost once it is silent.
  // Until it has admitted the stream it may wait for workers that start, however long, and nothing waits for it.
  void Send(grpc::ByteBuffer message, bool last = false) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (!last && admitted_) {
      changed_.wait(lock, [this] { return broken_ || closed_ || waits_ended_ || queued_bytes_ < kMostQueuedBytes; });
    }
    if (closed_ || (waits_ended_ && !last)) return;
    closed_ = last;
    if (closed_) changed_.notify_all();
    if (broken_) return Release();
    queued_bytes_ += message.Length();
    messages_.push_back(std::move(message));
    WriteNext();
  }

  void EndWaits() {
    const std::lock_guard<std::mutex> lock(mutex_);
    waits_ended_ = true;
    changed_.notify_all();
  }

  // The other side has admitted the stream. Until then it takes no more than the first message.
  void OnReadInitialMetadataDone(bool ok) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    admitted_ = ok;
    WriteNext();
  }

  void OnReadDone(bool ok) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (ok) {
      answer_.Clear();
      return StartRead(&answer_);
    }
    broken_ = true;
    if (!writing_) messages_.clear();
    Release();
    changed_.notify_all();
  }

  void OnWriteDone(bool ok) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    writing_ = false;
    broken_ = broken_ || !ok;
    hello_written_ = true;
    queued_bytes_ -= messages_.front().Length();
    messages_.pop_front();
    if (broken_) {
      messages_.clear();
    } else if (!messages_.empty()) {
      WriteNext();
    } else if (closed_) {
      StartWritesDone();
    }
    if (broken_ || (closed_ && messages_.empty())) Release();
    changed_.notify_all();
  }

  void OnDone(const grpc::Status& status) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!closed_) lost_(status.ok() ? "it does not listen any more" : status.error_message());
    done_ = broken_ = true;
    changed_.notify_all();
  }

  // Waits until all is written.
  void Flush(std::chrono::steady_clock::time_point deadline) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait_until(lock, deadline, [&] { return broken_ || messages_.empty(); });
  }
  // Waits until the stream has ended.
  bool WaitUntilDone(std::chrono::milliseconds time) {
    std::unique_lock<std::mutex> lock(mutex_);
    return changed_.wait_for(lock, time, [&] { return done_ || broken_; });
  }

  // Ends the stream, whatever is under way in it.
  void Cancel() {
    context_.TryCancel();
    std::unique_lock<std::mutex> lock(mutex_);
    closed_ = true;
    Release();
    changed_.wait(lock, [this] { return done_; });
  }

 private:
  // Begins to write the first message, if that may be.
  void WriteNext() {
    if (writing_ || broken_ || messages_.empty() || (hello_written_ && !admitted_)) return;
    writing_ = true;
    StartWrite(&messages_.front());
  }
  void Release() {
    if (!std::exchange(released_, true)) RemoveHold();
  }

  const std::function<void(absl::string_view why)> lost_;
  grpc::ClientContext context_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<grpc::ByteBuffer> messages_;  // the first one is being written
  size_t queued_bytes_ = 0;                // of all of them
  grpc::ByteBuffer answer_;
  bool hello_written_ = false, admitted_ = false;
  bool waits_ended_ = false;
  bool writing_ = false, closed_ = false, broken_ = false, released_ = false, done_ = false;
};

Sender::Sender(std::shared_ptr<grpc::Channel> channel, std::string hello,
               std::function<void(absl::string_view why)> lost)
    : channel_(std::move(channel)), stub_(channel_), stream_(std::make_unique<Stream>(std::move(lost))) {
  stream_->Start(stub_);
  stream_->Send(MessageOf(hello));
}

Sender::~Sender() { stream_->Cancel(); }

void Sender::SendFrame(absl::Span<const absl::string_view> parts) {
  uint64_t bytes = 0;
  for (const absl::string_view part : parts) bytes += part.size();
  stream_->Send(MessageOf(FrameHead(bytes)));
  // A message has as much as it may, so that many small parts cost little.
  std::vector<grpc::Slice> slices;
  size_t size = 0;  // of what the slices have of the frame
  const auto send = [&] {
    stream_->Send(grpc::ByteBuffer(slices.data(), slices.size()));
    slices.clear();
    size = 0;
  };
  for (absl::string_view part : parts) {
    while (!part.empty()) {
      if (size == 0) slices.emplace_back(&kPieceKind, 1);
      const absl::string_view piece = part.substr(0, kPieceBytes - size);
      slices.emplace_back(piece.data(), piece.size());
      part.remove_prefix(piece.size());
      size += piece.size();
      if (size == kPieceBytes) send();
    }
  }
  if (size > 0) send();
}

void Sender::SendFailure(const Failure& failure) { stream_->Send(MessageOf(PackFailure(failure)), /*last=*/true); }

void Sender::SendEnd() { stream_->Send(MessageOf(std::string(1, kEndKind)), /*last=*/true); }

void Sender::EndWaits() { stream_->EndWaits(); }

void Sender::Flush(std::chrono::steady_clock::time_point deadline) { stream_->Flush(deadline); }

bool Sender::WaitUntilTaken(std::chrono::milliseconds time) { return stream_->WaitUntilDone(time); }

namespace {

class JoinCall : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  JoinCall(const std::string& first, const std::function<absl::StatusOr<std::string>(const std::string&)>& respond)
      : write_(MessageOf(first)), respond_(respond) {}

  void Start(const std::shared_ptr<grpc::Channel>& channel, Clock::time_point deadline) {
    stub_ = std::make_unique<grpc::GenericStub>(channel);
    context_.set_wait_for_ready(true);
    context_.set_deadline(OnWallClock(deadline));
    stub_->PrepareBidiStreamingCall(&context_, kJoinMethod, grpc::StubOptions(), this);
    StartWrite(&write_);
    StartRead(&read_);
    StartCall();
  }
  void OnReadDone(bool ok) override {
    if (!ok) return;
    if (num_answers_++ > 0) {
      answer_ = TextOf(read_);
      return;
    }
    absl::StatusOr<std::string> second = respond_(TextOf(read_));
    if (!second.ok()) {
      error_ = second.status();
      return context_.TryCancel();
    }
    second_ = MessageOf(*second);
    WriteSecond();
    read_.Clear();
    StartRead(&read_);
  }
  void OnWriteDone(bool ok) override {
    if (ok) WriteSecond();
  }
  void OnDone(const grpc::Status& status) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    status_ = status;
    done_.notify_all();
  }

  absl::StatusOr<std::string> Wait(const std::function<void()>& waiting) {
    constexpr std::chrono::seconds kTellEvery(10);
    std::unique_lock<std::mutex> lock(mutex_);
    while (!done_.wait_for(lock, kTellEvery, [this] { return status_.has_value(); })) waiting();
    RETURN_IF_ERROR(error_);
    if (answer_) return *answer_;
    if (status_->error_code() == grpc::StatusCode::PERMISSION_DENIED) {
      return absl::PermissionDeniedError(status_->error_message());
    }
    if (status_->error_code() == grpc::StatusCode::ALREADY_EXISTS) {
      return absl::AlreadyExistsError(status_->error_message());
    }
    if (status_->error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) return absl::DeadlineExceededError("");
    return absl::UnavailableError(status_->error_message());
  }

 private:
  // Called when the second message is there, and when the first one has been written.
  void WriteSecond() {
    if (++ready_ == 2) StartWriteLast(&second_, grpc::WriteOptions());
  }

  std::unique_ptr<grpc::GenericStub> stub_;
  grpc::ClientContext context_;
  grpc::ByteBuffer write_, second_, read_;
  std::atomic<int> ready_ = 0;
  const std::function<absl::StatusOr<std::string>(const std::string&)>& respond_;
  int num_answers_ = 0;
  absl::Status error_;
  std::optional<std::string> answer_;
  std::mutex mutex_;
  std::condition_variable done_;
  std::optional<grpc::Status> status_;
};

}  // namespace

absl::StatusOr<std::string> CallJoin(const std::shared_ptr<grpc::Channel>& channel, const std::string& first,
                                     const std::function<absl::StatusOr<std::string>(const std::string&)>& respond,
                                     Clock::time_point deadline, const std::function<void()>& waiting) {
  JoinCall call(first, respond);
  call.Start(channel, deadline);
  return call.Wait(waiting);
}

}  // namespace official::distribute
