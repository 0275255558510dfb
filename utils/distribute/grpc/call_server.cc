#include "utils/distribute/grpc/call_server.h"

#include <condition_variable>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/distribute/grpc/call_stream.h"
#include "utils/distribute/grpc/credentials.h"
#include "utils/distribute/grpc/guarded_server.h"
#include "utils/distribute/grpc/quiet_grpc.h"
#include "utils/distribute/grpc/socket_address.h"

namespace official::distribute {
namespace {

using Reason = Refusals::Reason;

class GrpcCallServer : public CallServer {
 public:
  explicit GrpcCallServer(const ConnectOptions& options)
      : secret_(options.secret), refusals_(options.log), service_(*this) {}
  ~GrpcCallServer() override {
    if (server_ != nullptr) server_->Stop();
  }

  absl::Status Listen(const std::string& address, const ConnectOptions& options) {
    absl::StatusOr<std::unique_ptr<GuardedServer>> server = GuardedServer::Listen(address, options, refusals_);
    if (!server.ok()) {
      return absl::FailedPreconditionError(absl::StrCat("--serve=", address, ": ", server.status().message(),
                                                        "; use an address of this machine where nobody else listens"));
    }
    server_ = *std::move(server);
    return server_->Serve(service_);
  }

  std::unique_ptr<Call> Accept(std::chrono::milliseconds timeout) override {
    std::unique_lock<std::mutex> lock(mutex_);
    if (!changed_.wait_for(lock, timeout, [this] { return admitted_ != nullptr; })) return nullptr;
    const std::string key = admitted_->key();
    return std::make_unique<SealedCall<Stream>>(std::move(admitted_), key, "server", "client");
  }

 private:
  class Stream : public CallStream<grpc::ServerGenericBidiReactor> {
   public:
    static grpc::ServerGenericBidiReactor* Make(GrpcCallServer& server, const std::string& peer) {
      const auto stream = std::make_shared<Stream>(server, peer);
      stream->self_ = stream;
      const std::lock_guard<std::mutex> lock(stream->mutex_);
      stream->ReadNext();
      return stream.get();
    }
    Stream(GrpcCallServer& server, const std::string& peer) : server_(server), peer_(peer) {}

    const std::string& key() const { return key_; }

    void OnReadDone(bool ok) override {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (closed_) return;
      if (!ok) {
        SetEnded(absl::UnavailableError("it has ended"));
      } else if (!key_.empty()) {
        TakeMessage();
      } else if (nonce_.empty()) {
        Challenge(TextOf(read_));
      } else {
        Admit(TextOf(read_));
      }
      Advance();
    }
    void OnCancel() override {
      const std::lock_guard<std::mutex> lock(mutex_);
      SetEnded(absl::UnavailableError("its connection is closed"));
      Advance();
    }
    void OnDone() override { self_.reset(); }

    // The end of a call that was admitted.
    void Close() {
      {
        const std::lock_guard<std::mutex> lock(mutex_);
        SetEnded(absl::OkStatus());
        Advance();
      }
      server_.SetFree();
    }

   private:
    void Advance() override {
      if (!ended_ || writing_ || std::exchange(finished_, true)) return;
      Finish(status_);
    }
    void Refuse(grpc::StatusCode code, const std::string& why, std::optional<Reason> reason) {
      if (reason) server_.server_->acceptor().CountRefusal(*reason, peer_);
      status_ = grpc::Status(code, why);
      SetEnded(absl::UnavailableError("it is refused"));
    }
    void Challenge(const std::string& message) {
      const absl::StatusOr<std::vector<std::string>> strings = UnpackStrings(message);
      if (!strings.ok() || strings->size() != 2 || (*strings)[0] != kCallProtocol) {
        return Refuse(grpc::StatusCode::UNIMPLEMENTED, "", Reason::kNoWorker);
      }
      nonce_ = RandomBytes();
      client_nonce_ = (*strings)[1];
      to_send_.push_back(MessageOf(PackStrings({nonce_, ServerProof(server_.secret_, nonce_, client_nonce_)})));
      WriteNext();
      ReadNext();
    }
    void Admit(const std::string& message) {
      if (!SameProof(message, ClientProof(server_.secret_, nonce_, client_nonce_))) {
        return Refuse(grpc::StatusCode::PERMISSION_DENIED, "has another secret", Reason::kWrongSecret);
      }
      server_.server_->acceptor().SetProven(peer_);
      key_ = CallKey(server_.secret_, nonce_, client_nonce_);  // before Accept asks for it
      if (server_.Admit(self_)) return ReadNext();
      Refuse(grpc::StatusCode::ALREADY_EXISTS, "runs a task of another client; try again when that is done",
             std::nullopt);
    }

    GrpcCallServer& server_;
    const std::string peer_;
    std::shared_ptr<Stream> self_;  // until gRPC is done with it
    std::string nonce_, client_nonce_, key_;
    grpc::Status status_;
    bool finished_ = false;
  };

  class Service : public grpc::CallbackGenericService {
   public:
    explicit Service(GrpcCallServer& server) : server_(server) {}
    grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* context) override {
      const std::string peer = PeerOf(context->peer());
      if (context->method() == kCallMethod) return Stream::Make(server_, peer);
      server_.server_->acceptor().CountRefusal(Reason::kUnknownMethod, peer);
      return CallbackGenericService::CreateReactor(context);  // which refuses
    }

   private:
    GrpcCallServer& server_;
  };

  // Returns false if another client has the server.
  bool Admit(std::shared_ptr<Stream> stream) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (std::exchange(busy_, true)) return false;
    admitted_ = std::move(stream);
    changed_.notify_all();
    return true;
  }
  void SetFree() {
    const std::lock_guard<std::mutex> lock(mutex_);
    busy_ = false;
  }

  const std::string secret_;
  Refusals refusals_;
  Service service_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool busy_ = false;                 // a call is there, or waits for Accept
  std::shared_ptr<Stream> admitted_;  // the call that waits
  std::unique_ptr<GuardedServer> server_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<CallServer>> MakeCallServer(const std::string& address, const ConnectOptions& options) {
  StartQuietGrpc();
  if (options.tls) RETURN_IF_ERROR(CheckTlsFiles(*options.tls, address));
  if (!options.bind_all) WaitForName(address, WhoseName::kThisWorkers, options.start_timeout, options.log);
  auto server = std::make_unique<GrpcCallServer>(options);
  RETURN_IF_ERROR(server->Listen(options.bind_all ? OnAllInterfaces(address) : address, options));
  return server;
}

}  // namespace official::distribute
