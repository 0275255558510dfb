#include "utils/misc/available_memory.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <limits>
#include <optional>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace official::misc {
namespace {

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The number in a file that has only one, or after `key` in one with lines "key number ...". Nothing if there is none:
// the file is missing, or the number is a word, such as "max".
std::optional<int64_t> NumberIn(const std::string& path, absl::string_view key = "") {
  const std::string text = ReadFile(path);
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const std::vector<absl::string_view> words = absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
    const size_t at = key.empty() ? 0 : 1;
    int64_t number = 0;
    if (words.size() <= at || (at == 1 && words[0] != key)) continue;
    if (absl::SimpleAtoi(words[at], &number)) return number;
  }
  return std::nullopt;
}

// What the limit of a control group leaves; nothing without a limit.
std::optional<int64_t> LeftInGroup(const std::string& group, bool version2) {
  const auto limit = NumberIn(absl::StrCat(group, version2 ? "/memory.max" : "/memory.limit_in_bytes"));
  const auto used = NumberIn(absl::StrCat(group, version2 ? "/memory.current" : "/memory.usage_in_bytes"));
  if (!limit || !used) return std::nullopt;
  int64_t reclaimable = 0;
  for (const char* const cache : {"inactive_file", "active_file"}) {
    const std::string key = absl::StrCat(version2 ? "" : "total_", cache);
    reclaimable += NumberIn(absl::StrCat(group, "/memory.stat"), key).value_or(0);
  }
  return std::max<int64_t>(0, *limit - std::max<int64_t>(0, *used - reclaimable));
}

// The least that the groups of the process leave.
int64_t LeftInGroups(const MemoryFiles& files) {
  int64_t left = std::numeric_limits<int64_t>::max();
  const std::string membership = ReadFile(files.membership);
  for (const absl::string_view line : absl::StrSplit(membership, '\n')) {
    // <number>:<controllers>:<path>; version 2 is number 0 and names no controllers.
    const std::vector<absl::string_view> fields = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() < 3) continue;
    const std::vector<absl::string_view> controllers = absl::StrSplit(fields[1], ',');
    const bool version2 = fields[0] == "0" && fields[1].empty();
    if (!version2 && std::find(controllers.begin(), controllers.end(), "memory") == controllers.end()) continue;
    const std::string root = version2 ? files.groups : absl::StrCat(files.groups, "/memory");
    // The group and those around it. Within a container the path may be the host's, of which only the root is seen.
    std::string path(absl::StripSuffix(fields[2], "/"));
    for (;;) {
      left = std::min(left, LeftInGroup(root + path, version2).value_or(left));
      const size_t slash = path.rfind('/');
      if (slash == std::string::npos) break;
      path.resize(slash);
    }
  }
  return left;
}

}  // namespace

int64_t AvailableMemory(const MemoryFiles& files) {
  const std::optional<int64_t> kilobytes = NumberIn(files.meminfo, "MemAvailable:");
  const int64_t of_host = kilobytes ? *kilobytes * 1024 : std::numeric_limits<int64_t>::max();
  const int64_t left = std::min(of_host, LeftInGroups(files));
  return left == std::numeric_limits<int64_t>::max() ? -1 : left;
}

int64_t PeakMemory() {
  // getrusage also counts what the process had before it became this program.
  return NumberIn("/proc/self/status", "VmHWM:").value_or(0) * 1024;
}

}  // namespace official::misc
