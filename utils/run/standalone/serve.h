// The server of a task: run_standard_tensorflow_server of TensorFlow, for a client of its own (remote_cluster.h).
#pragma once

#include "absl/status/status.h"
#include "utils/flags/command_line.h"
#include "utils/run/config.h"

namespace official::run {

// Waits at the address of --serve for clients, and runs the tasks that they give it, one after the other, until a
// signal comes: then Cancelled. A task is this program again, with the flags of this command line and of the client. Of
// a client that is lost the task is stopped, as by SIGTERM. InvalidArgument if the address is none or strangers could
// give it tasks (see flags::ClusterConfig), FailedPrecondition if it cannot listen there.
absl::Status Serve(const flags::CommandLine& command_line, const Config& config);

}  // namespace official::run
