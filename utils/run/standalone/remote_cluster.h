// The standalone client: tf.contrib.distribute.DistributeConfig(remote_cluster=...) of TensorFlow.
#pragma once

#include <ostream>

#include "absl/status/status.h"
#include "utils/flags/command_line.h"
#include "utils/run/config.h"

namespace official::run {

// Has the servers of --remote_cluster run their tasks with the flags of this command line, and returns when all have
// ended. No task starts before all servers have accepted theirs. `results` gets what the tasks print, which are the
// chief's results and those of the evaluator, and stderr their other lines, after the name of the task. When the chief
// fails, or a signal comes, all tasks are stopped. Errors: InvalidArgument for a cluster that makes no sense, or if a
// server refuses its task; AlreadyExists if one runs another; DeadlineExceeded if one is not there in time. Then that
// of the first task that failed, by its exit status; Cancelled, with the name, if only tasks or servers were lost, or
// after a signal.
absl::Status RunOnRemoteCluster(const flags::CommandLine& command_line, const Config& config, std::ostream& results);

}  // namespace official::run
