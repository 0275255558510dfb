// The exchange between processes: each worker has a server, and a connection for each channel to every other one.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "utils/distribute/exchange.h"
#include "utils/distribute/grpc/connect_options.h"

namespace official::distribute {

// See ConnectWorkers, which calls this in the shared object that has gRPC.
absl::StatusOr<std::unique_ptr<Exchange>> MakeGrpcExchange(const ConnectOptions& options);

}  // namespace official::distribute
