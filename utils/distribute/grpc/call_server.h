// The server of calls, over gRPC.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "utils/distribute/grpc/call.h"

namespace official::distribute {

// Listens at an address for clients. Of `options` the secret, the certificates, the timeouts and the log count.
// InvalidArgument if a file of TLS is not accepted, FailedPrecondition if it cannot listen there.
absl::StatusOr<std::unique_ptr<CallServer>> MakeCallServer(const std::string& address, const ConnectOptions& options);

}  // namespace official::distribute
