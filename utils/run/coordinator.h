// A program with a coordinator, its workers and its parameter servers: which of them this process is.
#pragma once

#include "absl/status/status.h"
#include "utils/distribute/coordinator/cluster_coordinator.h"
#include "utils/distribute/coordinator/functions.h"
#include "utils/distribute/coordinator/run_task.h"
#include "utils/flags/flag_group.h"
#include "utils/run/config.h"

namespace official::run {

// Returns the flag --num_gpus as RunCoordinated reads it.
flags::FlagSpec GpusOfWorkersFlag();

// Does what the task that TF_CONFIG gives this process has to do, until the job has ended: the chief runs `program`,
// which is given the coordinator; workers and ps only serve it. That is tf.distribute.ParameterServerStrategy with
// ClusterCoordinator. Without a cluster all tasks are threads of this process: the coordinator, one worker and one ps.
// Each worker has --num_gpus GPUs, without the flag none, or --num_cpu_devices devices, on all tasks the same. The
// other flags that it reads are flags::ConnectionFlags(). InvalidArgument if options.num_devices is neither 1 nor that
// number, if a worker does not have the GPUs, for a cluster without chief, worker or ps, and for an evaluator; else
// errors of FindCluster, Connect and coordinator::RunTask.
absl::Status RunCoordinated(const Config& config, const coordinator::Functions& functions,
                            coordinator::CoordinatorOptions options, const coordinator::Program& program);

}  // namespace official::run
