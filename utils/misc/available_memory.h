// The host memory that a process may use, that is left of it, and that the process has used.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace official::misc {

// The files of the system that tell it; tests have others.
struct MemoryFiles {
  std::string meminfo = "/proc/meminfo";
  std::string membership = "/proc/self/cgroup";
  std::string groups = "/sys/fs/cgroup";  // where control groups are mounted
};

// Returns the bytes of memory that this process can have without swapping, nor exceeding the limit of its control
// group or of one around it (`docker run --memory`, limits of Kubernetes, MemoryMax of systemd). What a group holds as
// page cache counts as free. -1 if the system does not tell.
int64_t AvailableMemory(const MemoryFiles& files = {});

// Returns the bytes of memory to which the control group of this process, or one around it, limits it: the least of
// their limits; nothing if they have none.
std::optional<int64_t> MemoryLimit(const MemoryFiles& files = {});

// Returns the most bytes of this program that have been resident in memory at one time, so far; 0 if the system does
// not tell.
int64_t PeakMemory();

}  // namespace official::misc
