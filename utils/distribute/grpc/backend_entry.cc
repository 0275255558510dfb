// What the shared object with gRPC exports.
#include "utils/distribute/grpc/backend_entry.h"

#include "utils/distribute/grpc/grpc_exchange.h"

extern "C" __attribute__((visibility("default"))) void OfficialConnectWorkers(
    const official::distribute::ConnectOptions& options,
    absl::StatusOr<std::unique_ptr<official::distribute::Exchange>>& exchange) {
  exchange = official::distribute::MakeGrpcExchange(options);
}
