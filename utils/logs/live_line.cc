#include "utils/logs/live_line.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "utils/logs/terminal.h"

namespace official::logs {
namespace {

constexpr int kMinBar = 7, kMaxBar = 30;  // columns
constexpr int kMinTitle = 8;

// "[====>     ]"
std::string Bar(double fraction, int columns) {
  const int inside = columns - 2;
  const int full = static_cast<int>(std::clamp(fraction, 0.0, 1.0) * inside);
  std::string bar(full, '=');
  if (full < inside) bar += '>';
  bar.resize(inside, ' ');
  return absl::StrCat("[", bar, "]");
}

int MinColumns(const LinePart& part) { return part.bar ? kMinBar : DisplayColumns(part.text); }

}  // namespace

std::string FitLine(const std::vector<LinePart>& parts, int columns) {
  if (parts.empty()) return "";
  const auto needed = [&](size_t i) { return static_cast<int>(parts[i].before.size()) + MinColumns(parts[i]); };
  std::vector<size_t> others(parts.size() - 1);
  std::iota(others.begin(), others.end(), 1);
  std::stable_sort(others.begin(), others.end(), [&](size_t a, size_t b) { return parts[a].rank < parts[b].rank; });

  int left = columns;
  for (const size_t i : others) {
    if (parts[i].rank == 0) left -= needed(i);
  }
  const std::string title(CutToColumns(parts[0].text, std::max(left, kMinTitle)));
  left = columns - DisplayColumns(title);
  std::vector<bool> shown(parts.size());
  for (const size_t i : others) {
    shown[i] = needed(i) <= left;
    if (shown[i]) left -= needed(i);
  }
  std::string line = title;
  bool after_bar = false;
  for (size_t i = 1; i < parts.size(); ++i) {
    if (!shown[i]) continue;
    const LinePart& part = parts[i];
    absl::StrAppend(&line, after_bar ? " " : part.before,
                    part.bar ? Bar(*part.bar, std::min(kMinBar + left, kMaxBar)) : part.text);
    after_bar = part.bar.has_value();
  }
  return std::string(CutToColumns(line, columns));
}

}  // namespace official::logs
