// The live line below the log on a terminal (ShowLiveLine in log.h), laid out for the terminal's width.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"

namespace official::logs {

// Returns the number of columns that a live line may fill now: one less than the terminal has.
int LiveLineColumns();

// Returns the time of the log's last line; the start of the process if it had none.
std::chrono::steady_clock::time_point TimeOfLastLine();

// Calls `write`, which writes lines to another stream, while no live line is shown and no other thread logs: both
// streams may go to the same terminal.
void AboveLiveLine(absl::FunctionRef<void()> write);

// A part of a live line: text, or a bar that is full to a fraction.
struct LinePart {
  std::string text = "";
  int rank = 0;                     // parts of low rank are shown first
  absl::string_view before = ", ";  // separator between it and the part before it
  std::optional<double> bar = std::nullopt;
};

// Returns a line that fits into `columns`: the parts in their order, without those of the highest ranks if there is no
// room for all. The first part is cut to make room for the others of rank 0. A bar takes the columns that are left, 7
// to 30.
//   preparing  45% [======>       ] 4500/10000 images, 812.3 images/s, 0:12, 0:07 left
std::string FitLine(const std::vector<LinePart>& parts, int columns);

}  // namespace official::logs
