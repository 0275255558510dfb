// The function that a program calls in the shared object with gRPC.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "utils/distribute/exchange.h"
#include "utils/distribute/grpc/connect_options.h"

namespace official::distribute {

inline constexpr char kConnectWorkers[] = "OfficialConnectWorkers";
using ConnectWorkersFunction = void(const ConnectOptions& options, absl::StatusOr<std::unique_ptr<Exchange>>& exchange);

}  // namespace official::distribute
