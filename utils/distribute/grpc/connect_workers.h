// Connects the processes of a job.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "utils/distribute/exchange.h"
#include "utils/distribute/grpc/connect_options.h"

namespace official::distribute {

// Returns the exchange of this worker when all workers are there. It loads gRPC, which a process that is alone does not
// need. InvalidArgument, on all workers, if two of them differ in a fact; if this one has another secret than worker 0,
// its number is taken, or a file of TLS or the certificate of another worker is not accepted. FailedPrecondition if it
// cannot listen at its address, DeadlineExceeded if others do not come or cannot be reached, Cancelled if they do not
// come again, OutOfRange if the job was done before this worker could take part, NotFound without the shared object.
absl::StatusOr<std::unique_ptr<Exchange>> ConnectWorkers(const ConnectOptions& options);

}  // namespace official::distribute
