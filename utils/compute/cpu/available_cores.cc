#include "utils/compute/cpu/available_cores.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "utils/misc/system_files.h"

namespace official::compute {
namespace {

using misc::ReadSystemFile;

// Cores' worth of CPU time, or infinity.
double Ratio(absl::string_view quota, absl::string_view period) {
  double a = 0, b = 0;
  if (!absl::SimpleAtod(quota, &a) || !absl::SimpleAtod(period, &b) || a <= 0 || b <= 0) {
    return std::numeric_limits<double>::infinity();  // "max", -1
  }
  return a / b;
}

double QuotaOfGroup(const std::string& folder, bool version2) {
  if (!version2) {
    return Ratio(ReadSystemFile(folder + "/cpu.cfs_quota_us"), ReadSystemFile(folder + "/cpu.cfs_period_us"));
  }
  const std::vector<std::string> fields = absl::StrSplit(ReadSystemFile(folder + "/cpu.max"), absl::ByAnyChar(" \n"));
  return fields.size() < 2 ? std::numeric_limits<double>::infinity() : Ratio(fields[0], fields[1]);
}

}  // namespace

int CoresOfQuotas(absl::string_view membership, const std::string& mount) {
  double cores = std::numeric_limits<double>::infinity();
  misc::ForEachControlGroup(membership, mount, "cpu", [&](const std::string& folder, bool version2) {
    cores = std::min(cores, QuotaOfGroup(folder, version2));
  });
  return std::isfinite(cores) ? static_cast<int>(std::ceil(std::min(cores, 1e6))) : 0;
}

int AvailableCores() {
  cpu_set_t set;
  const int cores = sched_getaffinity(0, sizeof set, &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
  const int quota = CoresOfQuotas(ReadSystemFile("/proc/self/cgroup"), "/sys/fs/cgroup");
  return quota > 0 ? std::min(cores, quota) : cores;
}

}  // namespace official::compute
