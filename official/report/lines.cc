#include "official/report/lines.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "utils/compute/core/status.h"
#include "utils/files/files.h"

namespace official::report {

absl::Status ForEachLine(const std::string& path, const std::function<void(absl::string_view, bool has_end)>& read) {
  ASSIGN_OR_RETURN(const auto file, files::RandomAccessFile::Open(path));
  std::vector<char> buffer(1 << 16);
  std::string line;
  for (int64_t offset = 0;;) {
    ASSIGN_OR_RETURN(const int64_t size, file->ReadSome(offset, static_cast<int64_t>(buffer.size()), buffer.data()));
    if (size == 0) break;
    offset += size;
    absl::string_view rest(buffer.data(), size);
    for (size_t end; (end = rest.find('\n')) != absl::string_view::npos; rest.remove_prefix(end + 1)) {
      line.append(rest.data(), std::min(end, kMaxLineBytes - line.size()));
      read(line, true);
      line.clear();
    }
    line.append(rest.data(), std::min(rest.size(), kMaxLineBytes - line.size()));
  }
  if (!line.empty()) read(line, false);
  return absl::OkStatus();
}

}  // namespace official::report
