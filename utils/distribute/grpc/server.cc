#include "utils/distribute/grpc/server.h"

#include <atomic>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/distribute/grpc/socket_address.h"

namespace official::distribute {
namespace {

using Reason = Refusals::Reason;

// Why a process is refused, in its own log.
constexpr char kReplaced[] = "it trains on without this process, which it had lost";

grpc::Status Refused(const absl::Status& why) {
  const grpc::StatusCode code = absl::IsUnavailable(why)     ? grpc::StatusCode::UNAVAILABLE
                                : absl::IsAlreadyExists(why) ? grpc::StatusCode::ALREADY_EXISTS
                                                             : grpc::StatusCode::PERMISSION_DENIED;
  return {code, std::string(why.message())};
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
  JoinReactor(Server& server, const std::string& peer) : server_(server), join_(*server.join_), peer_(peer) {
    StartRead(&read_);
  }

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
      server_.acceptor().SetProven(peer_);  // before the worker leaves with the answer
      write_ = MessageOf(answer);
      answered_ = true;
      StartWriteAndFinish(&write_, {}, grpc::Status::OK);
    });
    if (!joined.ok()) return Refuse(joined);
    server_.acceptor().SetProven(peer_);
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
  void Refuse(const absl::Status& why) {
    if (absl::IsInvalidArgument(why)) server_.acceptor().CountRefusal(Reason::kNoWorker, peer_);
    if (absl::IsPermissionDenied(why)) server_.acceptor().CountRefusal(Reason::kWrongSecret, peer_);
    if (absl::IsAlreadyExists(why)) server_.acceptor().CountRefusal(Reason::kNotExpected, peer_);
    Finish(Refused(why));
  }
  // Called when it has joined, and has gone since.
  void Leave() {
    if (join_.Leave(this)) Refuse(absl::CancelledError("gone"));
  }

  Server& server_;
  JoinHandler& join_;
  const std::string peer_;
  grpc::ByteBuffer read_, write_;
  std::string state_;
  bool challenged_ = false;
  std::atomic<bool> answered_ = false;
  std::atomic<int> joined_or_cancelled_ = 0;  // how much of the two has happened
};

// The frames of one worker on one channel.
class Server::FramesReactor : public grpc::ServerGenericBidiReactor {
 public:
  FramesReactor(Server& server, const std::string& peer) : server_(server), peer_(peer) { StartRead(&read_); }

  void OnReadDone(bool ok) override {
    if (!ok) return End();
    if (hello_) return Take();
    first_ = TextOf(read_);
    {
      const std::lock_guard<std::mutex> lock(server_.mutex_);
      if (!server_.key_ && !gone_) return server_.waiting_.push_back(this);
    }
    if (gone_) return Finish(grpc::Status::CANCELLED);
    Admit();
  }
  void OnCancel() override {
    {
      const std::lock_guard<std::mutex> lock(server_.mutex_);
      gone_ = true;
      if (std::erase(server_.waiting_, this) == 0) return;  // a read ends it, now or later
    }
    Finish(grpc::Status::CANCELLED);
  }
  void OnDone() override { delete this; }

  // Called when the key is known.
  void Admit() {
    const absl::StatusOr<FramesHello> hello = server_.Admit(first_, peer_);
    if (!hello.ok()) return Finish(Refused(hello.status()));
    hello_ = *hello;
    StartSendInitialMetadata();  // tells the other side that it may send frames
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
    if (taken->frame && !server_.mailbox_.Put(hello_->from, hello_->channel, *std::move(taken->frame))) {
      return Finish(Refused(absl::PermissionDeniedError(kReplaced)));
    }
    if (taken->ends) server_.mailbox_.SetEnded(hello_->from, hello_->channel);
    if (taken->failure) server_.mailbox_.SetFailed(hello_->from, *taken->failure);
    in_order_ = in_order_ || taken->ends || taken->failure;
    ReadNext();
  }
  // It will send nothing more. A worker that leaves in order has said so.
  void End() {
    if (hello_ && !in_order_) server_.mailbox_.SetLost(hello_->from, "its connection is closed");
    Finish(grpc::Status::OK);
  }

  Server& server_;
  const std::string peer_;
  grpc::ByteBuffer read_;
  std::vector<grpc::Slice> slices_;  // of the message
  std::string first_;
  std::optional<FramesHello> hello_;  // once it is admitted
  FrameReader reader_;
  bool in_order_ = false;           // the last message has come
  std::atomic<bool> gone_ = false;  // the other side, or its connection
};

class Server::Service : public grpc::CallbackGenericService {
 public:
  explicit Service(Server& server) : server_(server) {}

  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* context) override {
    const std::string peer = PeerOf(context->peer());
    if (context->method() == kJoinMethod && server_.join_ != nullptr) return new JoinReactor(server_, peer);
    if (context->method() == kFramesMethod) return new FramesReactor(server_, peer);
    server_.acceptor().CountRefusal(Reason::kUnknownMethod, peer);
    return CallbackGenericService::CreateReactor(context);  // which refuses
  }

 private:
  Server& server_;
};

absl::StatusOr<std::unique_ptr<Server>> Server::Listen(const std::string& address, const ConnectOptions& options,
                                                       Mailbox& mailbox, JoinHandler* join, Refusals& refusals) {
  absl::StatusOr<std::unique_ptr<GuardedServer>> server = GuardedServer::Listen(address, options, refusals);
  if (!server.ok()) {
    const absl::string_view why = server.status().message();
    return absl::FailedPreconditionError(
        absl::StrCat(TaskName(options, options.worker), " cannot listen on ", address, ": ", why,
                     "; is that an address of this machine, and does no other run use it?",
                     why == std::strerror(EADDRNOTAVAIL)
                         ? " If the others reach this machine by it all the same, give --listen_on_all_interfaces"
                         : ""));
  }
  std::unique_ptr<Server> made(new Server(options, mailbox, join));
  made->service_ = std::make_unique<Service>(*made);
  made->server_ = *std::move(server);
  RETURN_IF_ERROR(made->server_->Serve(*made->service_));
  return made;
}

Server::Server(const ConnectOptions& options, Mailbox& mailbox, JoinHandler* join)
    : worker_(options.worker),
      num_workers_(static_cast<int>(options.addresses.size())),
      mailbox_(mailbox),
      join_(join) {}

Server::~Server() {
  if (server_ == nullptr) return;
  SetKey(RandomBytes(), incarnation_);  // those who wait for the key are refused
  server_->Stop();                      // while reactors can still reach it
}

void Server::SetKey(const std::string& key, int incarnation) {
  std::vector<FramesReactor*> waiting;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (key_) return;
    key_ = key;
    incarnation_ = incarnation;
    waiting.swap(waiting_);
  }
  for (FramesReactor* reactor : waiting) reactor->Admit();
}

// A hello holds for the job whose random key made it, and each stream of each process of a worker is there once. So one
// that was recorded opens nothing, neither in a later job nor in the same one after the worker's own. Who could bring
// it before has to hold the worker's own back, on the way between the two; who can do that can also change what they
// send, and only TLS helps.
absl::StatusOr<FramesHello> Server::Admit(const std::string& hello, const std::string& peer) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const absl::StatusOr<FramesHello> admitted = UnpackHello(hello, *key_);
  if (!admitted.ok()) {
    acceptor().CountRefusal(Reason::kWrongKey, peer);
    return admitted.status();
  }
  const auto& [from, to, channel, address] = *admitted;
  const bool is_peer = from.worker >= 0 && from.worker < num_workers_ && from.worker != worker_;
  const bool is_for_this = to.worker == worker_ && to.incarnation == incarnation_;
  if (is_peer && is_for_this && streams_.insert({from.worker, from.incarnation, static_cast<int>(channel)}).second) {
    acceptor().SetProven(peer);
    if (mailbox_.Admit(from, address)) return admitted;
    return absl::PermissionDeniedError(kReplaced);
  }
  acceptor().CountRefusal(Reason::kNotExpected, peer);
  return absl::InvalidArgumentError("this stream is not expected here");
}

}  // namespace official::distribute
