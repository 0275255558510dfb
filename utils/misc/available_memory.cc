#include "utils/misc/available_memory.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "utils/misc/system_files.h"

namespace official::misc {
namespace {

// The number in a file that has only one, or after `key` in one with lines "key number ...". Nothing if there is none:
// the file is missing, or the number is a word, such as "max".
std::optional<int64_t> NumberIn(const std::string& path, absl::string_view key = "") {
  const std::string text = ReadSystemFile(path);
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const std::vector<absl::string_view> words = absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
    const size_t at = key.empty() ? 0 : 1;
    int64_t number = 0;
    if (words.size() <= at || (at == 1 && words[0] != key)) continue;
    if (absl::SimpleAtoi(words[at], &number)) return number;
  }
  return std::nullopt;
}

// Nothing without a limit.
std::optional<int64_t> LimitOfGroup(const std::string& group, bool version2) {
  constexpr int64_t kNoLimit = int64_t{1} << 60;  // version 1 has no word for it, but a little less than 2^63
  const auto limit = NumberIn(absl::StrCat(group, version2 ? "/memory.max" : "/memory.limit_in_bytes"));
  return limit && *limit < kNoLimit ? limit : std::nullopt;
}

// What the limit of a control group leaves; nothing without a limit.
std::optional<int64_t> LeftInGroup(const std::string& group, bool version2) {
  const auto limit = LimitOfGroup(group, version2);
  const auto used = NumberIn(absl::StrCat(group, version2 ? "/memory.current" : "/memory.usage_in_bytes"));
  if (!limit || !used) return std::nullopt;
  int64_t reclaimable = 0;
  for (const char* const cache : {"inactive_file", "active_file"}) {
    const std::string key = absl::StrCat(version2 ? "" : "total_", cache);
    reclaimable += NumberIn(absl::StrCat(group, "/memory.stat"), key).value_or(0);
  }
  return std::max<int64_t>(0, *limit - std::max<int64_t>(0, *used - reclaimable));
}

// The least of what `of_group` tells of the groups of the process; nothing if it tells nothing of any.
std::optional<int64_t> LeastOfGroups(const MemoryFiles& files,
                                     std::optional<int64_t> (*of_group)(const std::string&, bool version2)) {
  std::optional<int64_t> least;
  ForEachControlGroup(ReadSystemFile(files.membership), files.groups, "memory",
                      [&](const std::string& folder, bool version2) {
                        const std::optional<int64_t> bytes = of_group(folder, version2);
                        if (bytes) least = std::min(*bytes, least.value_or(*bytes));
                      });
  return least;
}

}  // namespace

int64_t AvailableMemory(const MemoryFiles& files) {
  const std::optional<int64_t> kilobytes = NumberIn(files.meminfo, "MemAvailable:");
  const std::optional<int64_t> in_groups = LeastOfGroups(files, LeftInGroup);
  if (!kilobytes) return in_groups.value_or(-1);
  return std::min(*kilobytes * 1024, in_groups.value_or(std::numeric_limits<int64_t>::max()));
}

std::optional<int64_t> MemoryLimit(const MemoryFiles& files) { return LeastOfGroups(files, LimitOfGroup); }

int64_t PeakMemory() {
  // getrusage also counts what the process had before it became this program.
  return NumberIn("/proc/self/status", "VmHWM:").value_or(0) * 1024;
}

}  // namespace official::misc
