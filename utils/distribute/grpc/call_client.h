// A client's call, over gRPC.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "utils/distribute/grpc/call.h"

namespace official::distribute {

// Calls a server, and waits until it is there. InvalidArgument if it has another secret, is none, or one of the two
// does not accept the other's certificate; DeadlineExceeded, with the reason, if it is not there in time; Cancelled if
// `gives_up` says so.
absl::StatusOr<std::unique_ptr<Call>> MakeCall(const CallOptions& options);

}  // namespace official::distribute
