// Connects the processes of a job, and a client with the servers that run its tasks. All of it loads gRPC, which a
// process that is alone does not need: NotFound without the shared object.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "utils/distribute/exchange.h"
#include "utils/distribute/grpc/call.h"
#include "utils/distribute/grpc/connect_options.h"

namespace official::distribute {

// Returns the exchange of this worker when all workers are there. InvalidArgument, on all workers, if two of them
// differ in a fact; if this one has another secret than worker 0, its number is taken, or a file of TLS or the
// certificate of another worker is not accepted. FailedPrecondition if it cannot listen at its address,
// DeadlineExceeded if others do not come or cannot be reached, Cancelled if they do not come again, OutOfRange if the
// job was done before this worker could take part.
absl::StatusOr<std::unique_ptr<Exchange>> ConnectWorkers(const ConnectOptions& options);

// Listens for clients, who must know the secret of `options`. InvalidArgument if a file of TLS is not accepted,
// FailedPrecondition if it cannot listen at the address.
absl::StatusOr<std::unique_ptr<CallServer>> ListenForCalls(const std::string& address, const ConnectOptions& options);

// Calls a server, and waits until it is there. InvalidArgument if it has another secret, is none, or one of the two
// does not accept the other's certificate; DeadlineExceeded, with the reason, if it is not there in time; Cancelled if
// `options` say that it is not worth waiting any more.
absl::StatusOr<std::unique_ptr<Call>> CallServerOf(const CallOptions& options);

// Returns the version of gRPC that is loaded: "27.0.0", that of its core.
absl::StatusOr<std::string> GrpcVersion();

}  // namespace official::distribute
