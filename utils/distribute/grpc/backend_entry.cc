// What the shared object with gRPC exports.
#include "utils/distribute/grpc/backend_entry.h"

#include "utils/distribute/grpc/call_client.h"
#include "utils/distribute/grpc/call_server.h"
#include "utils/distribute/grpc/grpc_exchange.h"

extern "C" __attribute__((visibility("default"))) void OfficialConnectWorkers(
    const official::distribute::ConnectOptions& options,
    absl::StatusOr<std::unique_ptr<official::distribute::Exchange>>& exchange) {
  exchange = official::distribute::MakeGrpcExchange(options);
}

extern "C" __attribute__((visibility("default"))) void OfficialListenForCalls(
    const std::string& address, const official::distribute::ConnectOptions& options,
    absl::StatusOr<std::unique_ptr<official::distribute::CallServer>>& server) {
  server = official::distribute::MakeCallServer(address, options);
}

extern "C" __attribute__((visibility("default"))) void OfficialCallServer(
    const official::distribute::CallOptions& options,
    absl::StatusOr<std::unique_ptr<official::distribute::Call>>& call) {
  call = official::distribute::MakeCall(options);
}
