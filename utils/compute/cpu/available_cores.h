// The number of cores that a process may use.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace official::compute {

// The number of cores that this process may keep busy, at least 1: those it may run on (sched_setaffinity, cpusets),
// but no more than the CPU time that its control group and those around it may have (`docker run --cpus`, limits of
// Kubernetes, CPUQuota of systemd), rounded up.
int AvailableCores();

// The cores' worth of CPU time that quotas of control groups leave, rounded up; 0: there is no quota. `membership` is
// the text of /proc/self/cgroup, `mount` where control groups are mounted, usually /sys/fs/cgroup: version 2 itself
// (cpu.max), or of version 1 the folder with `cpu` or `cpu,cpuacct` (cpu.cfs_quota_us, cpu.cfs_period_us).
int CoresOfQuotas(absl::string_view membership, const std::string& mount);

}  // namespace official::compute
