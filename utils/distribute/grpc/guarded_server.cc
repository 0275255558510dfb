#include "utils/distribute/grpc/guarded_server.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/distribute/grpc/credentials.h"
#include "utils/distribute/grpc/socket_address.h"
#include "utils/distribute/grpc/wire.h"

namespace official::distribute {
namespace {

// A piece of a frame is the longest message.
constexpr int kMostMessageBytes = kPieceBytes + 1024;
constexpr int kMostMetadataBytes = 4096;

}  // namespace

absl::StatusOr<std::unique_ptr<GuardedServer>> GuardedServer::Listen(const std::string& address,
                                                                     const ConnectOptions& options,
                                                                     Refusals& refusals) {
  std::string bound = address;
  if (IsNameOfLoopback(address)) {
    bound = OnAllInterfaces(address);
    if (options.log) {
      options.log(absl::StrCat("listens on all interfaces, at ", bound, ", since ", HostOf(address),
                               " stands for a loopback address here"));
    }
  }
  ASSIGN_OR_RETURN(std::unique_ptr<Acceptor> acceptor,
                   Acceptor::Listen(bound, options.addresses.size(), options.peer_timeout, refusals));
  return std::unique_ptr<GuardedServer>(new GuardedServer(options, std::move(acceptor)));
}

GuardedServer::GuardedServer(const ConnectOptions& options, std::unique_ptr<Acceptor> acceptor)
    : tls_(options.tls), peer_timeout_ms_(TimeoutMilliseconds(options.peer_timeout)), acceptor_(std::move(acceptor)) {}

GuardedServer::~GuardedServer() { Stop(); }

void GuardedServer::Stop() {
  if (server_ == nullptr) return;
  acceptor_->Stop();  // a server that is shut down does not close the connections that it is given
  server_->Shutdown(std::chrono::system_clock::now());
  server_->Wait();
  server_.reset();
}

absl::Status GuardedServer::Serve(grpc::CallbackGenericService& service) {
  grpc::ServerBuilder builder;
  connections_ = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, ServerCredentialsOf(tls_));
  builder.RegisterCallbackGenericService(&service);
  builder.SetMaxReceiveMessageSize(kMostMessageBytes);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMostMetadataBytes);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, 1);  // of a connection; a worker has one for each
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 1000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, peer_timeout_ms_);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 500);
  builder.AddChannelArgument("grpc.http2.lookahead_bytes", 16 << 20);
  builder.AddChannelArgument("grpc.tcp_read_chunk_size", 1 << 20);
  server_ = builder.BuildAndStart();
  if (server_ == nullptr) return absl::InternalError("gRPC makes no server");
  acceptor_->Start([connections = connections_.get()](int fd) {
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
    connection.fd = fd;
    connections->HandleNewConnection(&connection);
  });
  return absl::OkStatus();
}

}  // namespace official::distribute
