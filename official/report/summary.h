// The output of report_main: the curves of runs as rows of characters, or JSON.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "official/report/run.h"

namespace official::report {

struct TextStyle {
  int columns = 80;  // lines are no longer than this, if it is at least 40
  bool color = false;
};

// Returns the curve as at most `width` characters from a low to a high bar, each the mean of equally many steps
// that have a value; "!" stands for values that are not finite.
std::string Sparkline(const Series& series, int width);

// Prints a run in a few lines: what it is, and each curve with its first and last value.
void PrintSummary(const Run& run, const TextStyle& style, std::ostream& out);

// Prints a run as one line of JSON: {"event": "run", "path", "facts", "last_step", "seconds", "curves", "samples",
// "notes"}. "seconds" are those from the first to the last event. A curve has its name, its split ("training",
// "evaluation"), of its finite values first, last, min, max and the steps first_step and last_step (null if there are
// none), and the counts count and not_finite; a sample of the last evaluation has its texts by the names of their
// columns.
void PrintJsonSummary(const Run& run, std::ostream& out);

// Returns the style for standard output: its width if it is a terminal, else COLUMNS or 80, and colour as NO_COLOR and
// CLICOLOR_FORCE say.
TextStyle StyleOfStandardOutput();

}  // namespace official::report
