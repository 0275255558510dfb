// The functions that a program calls in the shared object with gRPC.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "utils/distribute/exchange.h"
#include "utils/distribute/grpc/call.h"
#include "utils/distribute/grpc/connect_options.h"

namespace official::distribute {

inline constexpr char kConnectWorkers[] = "OfficialConnectWorkers";
using ConnectWorkersFunction = void(const ConnectOptions& options, absl::StatusOr<std::unique_ptr<Exchange>>& exchange);

inline constexpr char kListenForCalls[] = "OfficialListenForCalls";
using ListenForCallsFunction = void(const std::string& address, const ConnectOptions& options,
                                    absl::StatusOr<std::unique_ptr<CallServer>>& server);

inline constexpr char kCallServer[] = "OfficialCallServer";
using CallServerFunction = void(const CallOptions& options, absl::StatusOr<std::unique_ptr<Call>>& call);

}  // namespace official::distribute
