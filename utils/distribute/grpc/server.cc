#include "utils/distribute/grpc/server.h"

#include <atomic>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/distribute/grpc/socket_address.h"

namespace official::distribute {
namespace {

// A hello, or what a worker that joins says of itself; frames come in pieces.
constexpr int kMostMessageBytes = 4 << 20;

grpc::Status Refused(const absl::Status& why) {
  return {grpc::StatusCode::PERMISSION_DENIED, std::string(why.message())};
}

}  // namespace

std::string TextOf(const grpc::ByteBuffer& message) {
  std::vector<grpc::Slice> slices;
  std::string text;
  if (!message.Dump(&slices).ok()) return text;
  text.reserve(message.Length());
  for (const grpc::Slice& slice : slices) text.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  return text;
}

grpc::ByteBuffer MessageOf(absl::string_view bytes) {
  const grpc::Slice slice(bytes.data(), bytes.size());
  return {&slice, 1};
}

// One worker that joins: it proves that it knows the secret, and waits for the others.
class Server::JoinReactor : public grpc::ServerGenericBidiReactor {
 public:
  explicit JoinReactor(JoinHandler& join) : join_(join) { StartRead(&read_); }

  void OnReadDone(bool ok) override {
    if (!ok) return Refuse(absl::CancelledError("gone"));
    const std::string message = TextOf(read_);
    if (!challenged_) {
      challenged_ = true;
      const absl::StatusOr<std::string> answer = join_.Challenge(message, state_);
      if (!answer.ok()) return Refuse(answer.status());
      write_ = MessageOf(*answer);
      return StartWrite(&write_);
    }
    const absl::Status joined = join_.Join(message, state_, this, [this](const std::string& answer) {
      write_ = MessageOf(answer);
      answered_ = true;
      StartWriteAndFinish(&write_, {}, grpc::Status::OK);
    });
    if (!joined.ok()) return Refuse(joined);
    if (++joined_or_cancelled_ == 2) Leave();
  }
  void OnCancel() override {
    if (++joined_or_cancelled_ == 2) Leave();
  }
  void OnWriteDone(bool ok) override {
    if (answered_) return;
    if (!ok) return Refuse(absl::CancelledError("gone"));
    read_.Clear();
    StartRead(&read_);
  }
  void OnDone() override {
    join_.Done(this);
    delete this;
  }

 private:
  void Refuse(const absl::Status& why) { Finish(Refused(why)); }
  // Called when it has joined, and has gone since.
  void Leave() {
    if (join_.Leave(this)) Refuse(absl::CancelledError("gone"));
  }

  JoinHandler& join_;
  grpc::ByteBuffer read_, write_;
  std::string state_;
  bool challenged_ = false;
  std::atomic<bool> answered_ = false;
  std::atomic<int> joined_or_cancelled_ = 0;  // how much of the two has happened
};

// The frames of one worker on one channel.
class Server::FramesReactor : public grpc::ServerGenericBidiReactor {
 public:
  explicit FramesReactor(Server& server) : server_(server) { StartRead(&read_); }

  void OnReadDone(bool ok) override {
    if (!ok) return End();
    if (hello_) return Take();
    first_ = TextOf(read_);
    {
      const std::lock_guard<std::mutex> lock(server_.mutex_);
      if (!server_.key_) return server_.waiting_.push_back(this);
    }
    Admit();
  }
  void OnDone() override { delete this; }

  // Called when the key is known.
  void Admit() {
    const absl::StatusOr<FramesHello> hello = server_.Admit(first_);
    if (!hello.ok()) return Finish(Refused(hello.status()));
    hello_ = *hello;
    ReadNext();
  }

 private:
  void ReadNext() {
    read_.Clear();
    StartRead(&read_);
  }
  void Take() {
    read_.Dump(&slices_).ok();
    std::vector<absl::string_view> parts;
    for (const grpc::Slice& slice : slices_) {
      parts.emplace_back(reinterpret_cast<const char*>(slice.begin()), slice.size());
    }
    absl::StatusOr<FrameReader::Result> taken = reader_.Take(parts);
    if (!taken.ok()) {
      server_.mailbox_.SetLost(hello_->from, taken.status().message());
      return Finish(Refused(taken.status()));
    }
    if (taken->frame) server_.mailbox_.Put(hello_->from, hello_->channel, *std::move(taken->frame));
    if (taken->ends) server_.mailbox_.SetEnded(hello_->from);
    if (taken->failure) server_.mailbox_.SetFailed(hello_->from, *taken->failure);
    ReadNext();
  }
  // It will send nothing more. A worker that leaves in order has said so.
  void End() {
    if (hello_) server_.mailbox_.SetLost(hello_->from, "its connection is closed");
    Finish(grpc::Status::OK);
  }

  Server& server_;
  grpc::ByteBuffer read_;
  std::vector<grpc::Slice> slices_;  // of the message
  std::string first_;
  std::optional<FramesHello> hello_;  // once it is admitted
  FrameReader reader_;
};

class Server::Service : public grpc::CallbackGenericService {
 public:
  explicit Service(Server& server) : server_(server) {}

  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* context) override {
    if (context->method() == kJoinMethod && server_.join_ != nullptr) return new JoinReactor(*server_.join_);
    if (context->method() == kFramesMethod) return new FramesReactor(server_);
    return CallbackGenericService::CreateReactor(context);  // which refuses
  }

 private:
  Server& server_;
};

absl::StatusOr<std::unique_ptr<Server>> Server::Listen(const std::string& address, int worker, int num_workers,
                                                       std::chrono::seconds peer_timeout, Mailbox& mailbox,
                                                       JoinHandler* join) {
  std::unique_ptr<Server> made(new Server(worker, num_workers, mailbox, join));
  made->service_ = std::make_unique<Service>(*made);
  grpc::ServerBuilder builder;
  builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &made->port_);
  builder.RegisterCallbackGenericService(made->service_.get());
  builder.SetMaxReceiveMessageSize(kMostMessageBytes);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);  // else a taken port is bound
  const auto timeout_ms = static_cast<int>(std::chrono::milliseconds(peer_timeout).count());
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 1000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, timeout_ms);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 500);
  builder.AddChannelArgument("grpc.http2.lookahead_bytes", 16 << 20);
  builder.AddChannelArgument("grpc.tcp_read_chunk_size", 1 << 20);
  made->server_ = builder.BuildAndStart();
  if (made->server_ != nullptr && made->port_ > 0) return made;
  return absl::FailedPreconditionError(
      absl::StrCat("worker ", worker, " cannot listen on ", address, ": ", WhyNotListen(address),
                   "; is that an address of this machine, and does no other run use it?"));
}

Server::Server(int worker, int num_workers, Mailbox& mailbox, JoinHandler* join)
    : worker_(worker), num_workers_(num_workers), mailbox_(mailbox), join_(join) {}

Server::~Server() {
  if (server_ == nullptr) return;
  SetKey(RandomBytes());  // those who wait for the key are refused
  server_->Shutdown(std::chrono::system_clock::now());
  server_->Wait();
}

void Server::SetKey(const std::string& key) {
  std::vector<FramesReactor*> waiting;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (key_) return;
    key_ = key;
    waiting.swap(waiting_);
  }
  for (FramesReactor* reactor : waiting) reactor->Admit();
}

absl::StatusOr<FramesHello> Server::Admit(const std::string& hello) {
  const std::lock_guard<std::mutex> lock(mutex_);
  ASSIGN_OR_RETURN(const FramesHello admitted, UnpackHello(hello, *key_));
  const bool is_peer = admitted.from >= 0 && admitted.from < num_workers_ && admitted.from != worker_;
  if (is_peer && admitted.to == worker_ &&
      streams_.insert({admitted.from, static_cast<int>(admitted.channel)}).second) {
    return admitted;
  }
  return absl::InvalidArgumentError("this stream is not expected here");
}

}  // namespace official::distribute
