// A gRPC server that strangers cannot use up: its connections come through an Acceptor, and have its limits.
#pragma once

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "utils/distribute/grpc/acceptor.h"
#include "utils/distribute/grpc/connect_options.h"
#include "utils/distribute/grpc/refusals.h"

namespace official::distribute {

class GuardedServer {
 public:
  // Listens on an address; port 0 is a free one. A name that stands for loopback alone is that of this machine, which
  // others reach by other addresses: then on all interfaces, which the log says. `refusals` must outlive the result.
  // Unavailable, with what the system says, if that is not possible.
  static absl::StatusOr<std::unique_ptr<GuardedServer>> Listen(const std::string& address,
                                                               const ConnectOptions& options, Refusals& refusals);
  ~GuardedServer();

  // Serves calls from now on. `service` must outlive the server.
  absl::Status Serve(grpc::CallbackGenericService& service);
  // Ends all calls, and waits until their reactors are done.
  void Stop();
  Acceptor& acceptor() { return *acceptor_; }

 private:
  GuardedServer(const ConnectOptions& options, std::unique_ptr<Acceptor> acceptor);

  const std::optional<TlsFiles> tls_;
  const int peer_timeout_ms_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> connections_;  // of the acceptor, to the server
  const std::unique_ptr<Acceptor> acceptor_;
};

}  // namespace official::distribute
