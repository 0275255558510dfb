#include "utils/misc/system_files.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace official::misc {

std::string ReadSystemFile(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string SystemField(const std::string& path, absl::string_view name, char separator) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(line, absl::MaxSplits(separator, 1));
    if (absl::StripAsciiWhitespace(parts.first) == name) return std::string(absl::StripAsciiWhitespace(parts.second));
  }
  return "";
}

void ForEachControlGroup(absl::string_view membership, const std::string& mount, absl::string_view controller,
                         absl::FunctionRef<void(const std::string& folder, bool version2)> f) {
  for (const absl::string_view line : absl::StrSplit(membership, '\n')) {
    // <number>:<controllers>:<path>; version 2 is number 0 and names no controllers.
    const std::vector<absl::string_view> fields = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() < 3) continue;
    const std::vector<absl::string_view> controllers = absl::StrSplit(fields[1], ',');
    const bool version2 = fields[0] == "0" && fields[1].empty();
    if (!version2 && std::find(controllers.begin(), controllers.end(), controller) == controllers.end()) continue;
    const std::string root = version2 ? mount : absl::StrCat(mount, "/", fields[1]);
    std::string path(absl::StripSuffix(fields[2], "/"));
    for (;;) {
      f(root + path, version2);
      const size_t slash = path.rfind('/');
      if (slash == std::string::npos) break;
      path.resize(slash);
    }
  }
}

}  // namespace official::misc
