// The figures of runs side by side.
#pragma once

#include <string>
#include <vector>

#include "official/report/run.h"

namespace official::report {

// Returns an HTML <table> with a column for each run: model, data, steps, time, the last values of the curves.
std::string OverviewTable(const std::vector<Run>& runs);

// Returns the time between the first and the last event: "1 h 5 min", "2.3 s", or "" if it is not known.
std::string TimeText(const Run& run);

// Returns the names that any of the lists has, in the order of their first appearance.
std::vector<std::string> NamesOf(const std::vector<const NamedTexts*>& lists);

// Returns the value of `name` in each of the lists, "" where there is none.
std::vector<std::string> ValuesOf(const std::string& name, const std::vector<const NamedTexts*>& lists);

// True unless all are the same.
bool Differ(const std::vector<std::string>& values);

}  // namespace official::report
