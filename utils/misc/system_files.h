// Files in which the system tells a process what it may use.
#pragma once

#include <string>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"

namespace official::misc {

// Returns the text of a file, such as one of /proc; empty if there is no such file.
std::string ReadSystemFile(const std::string& path);

// Returns the value of the first line "name : value" of a file, without the blanks around it; empty if there is none.
std::string SystemField(const std::string& path, absl::string_view name, char separator = ':');

// Calls f(folder, version2) for each control group with this controller ("cpu") that the process is in: its own and
// those around it, each of version 1 or 2. There may be no such folder: within a container the paths may be those of
// the host, of which only the root is seen. `membership` is the text of /proc/self/cgroup, `mount` where control groups
// are mounted, usually /sys/fs/cgroup: version 2 itself, or of version 1 a folder with the names of the controllers,
// such as `cpu,cpuacct`.
void ForEachControlGroup(absl::string_view membership, const std::string& mount, absl::string_view controller,
                         absl::FunctionRef<void(const std::string& folder, bool version2)> f);

}  // namespace official::misc
