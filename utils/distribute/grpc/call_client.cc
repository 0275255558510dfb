#include "utils/distribute/grpc/call_client.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/distribute/grpc/call_stream.h"
#include "utils/distribute/grpc/credentials.h"
#include "utils/distribute/grpc/peer.h"
#include "utils/distribute/grpc/quiet_grpc.h"
#include "utils/distribute/grpc/socket_address.h"

namespace official::distribute {
namespace {

absl::Status EndOf(const grpc::Status& status) {
  const std::string why = status.error_message();
  switch (status.error_code()) {
    case grpc::StatusCode::PERMISSION_DENIED:
      return absl::InvalidArgumentError(why);
    case grpc::StatusCode::ALREADY_EXISTS:
      return absl::AlreadyExistsError(why);
    case grpc::StatusCode::UNIMPLEMENTED:
      return absl::InvalidArgumentError("is no server of this version");
    default:
      return absl::UnavailableError(why.empty() ? "it has ended" : why);
  }
}

class Stream : public CallStream<grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>> {
 public:
  explicit Stream(std::shared_ptr<grpc::Channel> channel) : channel_(std::move(channel)), stub_(channel_) {}

  void Start() {
    stub_.PrepareBidiStreamingCall(&context_, kCallMethod, grpc::StubOptions(), this);
    AddHold();  // until no operation is started any more
    StartRead(&read_);
    StartCall();
  }
  void OnReadDone(bool ok) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (ok && !closed_) return TakeMessage();
    closed_ = true;
    Advance();
  }
  void OnDone(const grpc::Status& status) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    SetEnded(EndOf(status));
  }
  // Ends the call, whatever is under way in it.
  void Close() {
    context_.TryCancel();
    std::unique_lock<std::mutex> lock(mutex_);
    closed_ = true;
    Advance();
    changed_.wait(lock, [this] { return ended_; });
  }

 private:
  void Advance() override {
    if (closed_ && !std::exchange(released_, true)) RemoveHold();
  }

  const std::shared_ptr<grpc::Channel> channel_;
  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  bool released_ = false;
};

// Ends a stream that becomes no call.
struct Closer {
  explicit Closer(std::shared_ptr<Stream> opened) : stream(std::move(opened)) {}
  ~Closer() {
    if (stream != nullptr) stream->Close();
  }
  std::shared_ptr<Stream> stream;
};

absl::StatusOr<std::unique_ptr<Call>> Open(const CallOptions& options, const std::shared_ptr<grpc::Channel>& channel) {
  Closer opened(std::make_shared<Stream>(channel));
  Stream& stream = *opened.stream;
  const std::string nonce = RandomBytes(), &secret = options.connect.secret;
  stream.Start();
  RETURN_IF_ERROR(stream.Send(PackStrings({kCallProtocol, nonce})));
  ASSIGN_OR_RETURN(const std::string challenge, stream.Receive(options.connect.peer_timeout));
  const absl::StatusOr<std::vector<std::string>> strings = UnpackStrings(challenge);
  if (!strings.ok() || strings->size() != 2) return absl::InvalidArgumentError("is no server of this version");
  const std::string& server_nonce = (*strings)[0];
  if (!SameProof((*strings)[1], ServerProof(secret, server_nonce, nonce))) {
    return absl::InvalidArgumentError("has another secret; give it and the client the same --run_secret_file");
  }
  RETURN_IF_ERROR(stream.Send(ClientProof(secret, server_nonce, nonce)));
  return std::make_unique<SealedCall<Stream>>(std::exchange(opened.stream, nullptr),
                                              CallKey(secret, server_nonce, nonce), "client", "server");
}

}  // namespace

absl::StatusOr<std::unique_ptr<Call>> MakeCall(const CallOptions& options) {
  using Clock = std::chrono::steady_clock;
  StartQuietGrpc();
  const ConnectOptions& connect = options.connect;
  if (connect.tls) RETURN_IF_ERROR(CheckTlsFiles(*connect.tls, /*address=*/""));
  const std::string name = absl::StrCat(options.name, " at ", options.address);
  const Clock::time_point end = Clock::now() + connect.start_timeout;
  WaitForName(options.address, WhoseName::kOtherWorkers, connect.start_timeout, connect.log, options.gives_up);
  const std::shared_ptr<grpc::Channel> channel = MakeChannel(options.address, connect);
  constexpr std::chrono::seconds kTellEvery(10);
  constexpr std::chrono::milliseconds kBetween(100);
  Clock::time_point tell_at = Clock::now() + kTellEvery;
  for (;; std::this_thread::sleep_for(kBetween)) {
    absl::Status status = WaitUntilConnected(*channel, options.name, options.address, connect);
    if (absl::IsInvalidArgument(status)) return status;
    if (status.ok()) {
      absl::StatusOr<std::unique_ptr<Call>> call = Open(options, channel);
      if (call.ok()) return call;
      status = call.status();
      if (absl::IsInvalidArgument(status)) {
        return absl::InvalidArgumentError(absl::StrCat(name, " ", status.message()));
      }
    }
    if (options.gives_up && options.gives_up()) return absl::CancelledError("another server refuses its task");
    if (connect.log && Clock::now() >= tell_at) {
      connect.log(absl::StrCat("waiting for ", name, status.message().empty() ? "" : ": ", status.message()));
      tell_at += kTellEvery;
    }
    if (Clock::now() < end) continue;
    absl::string_view why = status.message();
    const absl::Status connection = WhyNoConnection(options.name, options.address, connect.tls);
    if (why.empty()) why = connection.message();
    return absl::DeadlineExceededError(absl::StrCat("after ", connect.start_timeout.count(),
                                                    " s there is no answer from ", name, ": ", why,
                                                    "; start it, or raise --start_timeout_secs"));
  }
}

}  // namespace official::distribute
