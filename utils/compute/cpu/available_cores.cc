#include "utils/compute/cpu/available_cores.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <sstream>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace official::compute {
namespace {

// Empty if there is no such file.
std::string ReadFile(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// Cores' worth of CPU time, or infinity.
double Ratio(absl::string_view quota, absl::string_view period) {
  double a = 0, b = 0;
  if (!absl::SimpleAtod(quota, &a) || !absl::SimpleAtod(period, &b) || a <= 0 || b <= 0) {
    return std::numeric_limits<double>::infinity();  // "max", -1
  }
  return a / b;
}

double QuotaOfGroup(const std::string& folder, bool version2) {
  if (!version2) return Ratio(ReadFile(folder + "/cpu.cfs_quota_us"), ReadFile(folder + "/cpu.cfs_period_us"));
  const std::vector<std::string> fields = absl::StrSplit(ReadFile(folder + "/cpu.max"), absl::ByAnyChar(" \n"));
  return fields.size() < 2 ? std::numeric_limits<double>::infinity() : Ratio(fields[0], fields[1]);
}

}  // namespace

int CoresOfQuotas(absl::string_view membership, const std::string& mount) {
  double cores = std::numeric_limits<double>::infinity();
  for (const absl::string_view line : absl::StrSplit(membership, '\n')) {
    // <number>:<controllers>:<path>; version 2 is number 0 and names no controllers.
    const std::vector<absl::string_view> fields = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() < 3) continue;
    const std::vector<absl::string_view> controllers = absl::StrSplit(fields[1], ',');
    const bool version2 = fields[0] == "0" && fields[1].empty();
    if (!version2 && std::find(controllers.begin(), controllers.end(), "cpu") == controllers.end()) continue;
    const std::string root = version2 ? mount : absl::StrCat(mount, "/", fields[1]);
    // The group and those around it. Within a container the path may be the host's, of which only the root is seen.
    std::string path(absl::StripSuffix(fields[2], "/"));
    for (;;) {
      cores = std::min(cores, QuotaOfGroup(root + path, version2));
      const size_t slash = path.rfind('/');
      if (slash == std::string::npos) break;
      path.resize(slash);
    }
  }
  return std::isfinite(cores) ? static_cast<int>(std::ceil(std::min(cores, 1e6))) : 0;
}

int AvailableCores() {
  cpu_set_t set;
  const int cores = sched_getaffinity(0, sizeof set, &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
  const int quota = CoresOfQuotas(ReadFile("/proc/self/cgroup"), "/sys/fs/cgroup");
  return quota > 0 ? std::min(cores, quota) : cores;
}

}  // namespace official::compute
