// The tasks of a coordinated job: each process calls RunTask, and is then the coordinator, a worker or a parameter
// server. As tf.distribute.ParameterServerStrategy, whose workers and ps run only a server.
#pragma once

#include <functional>

#include "absl/status/status.h"
#include "utils/distribute/coordinator/cluster_coordinator.h"
#include "utils/distribute/coordinator/functions.h"
#include "utils/distribute/exchange.h"

namespace official::coordinator {

// Program: the part of a program that the coordinator runs.
using Program = std::function<absl::Status(ClusterCoordinator& coordinator)>;

// Returns InvalidArgument for a job without workers or servers: "There must be at least one ps.", "There must be at
// least one worker.".
absl::Status CheckTasks(int num_workers, int num_servers);

// Does what this task of the exchange has to do, until the job has ended: task 0 runs `program`; the last `num_servers`
// tasks are parameter servers, the others workers. Returns the error of the program; for Unavailable, and on the other
// tasks, Cancelled: the job may be started again. Errors: those of CheckTasks.
absl::Status RunTask(distribute::Exchange& exchange, int num_servers, const Functions& functions,
                     const CoordinatorOptions& options, const Program& program);

// Runs all tasks of a job in this process, each on a thread, as the guide's create_in_process_cluster.
absl::Status RunInProcess(int num_workers, int num_servers, const Functions& functions,
                          const CoordinatorOptions& options, const Program& program);

}  // namespace official::coordinator
