// Where the time of a step goes.
#pragma once

#include <string>
#include <vector>

#include "official/report/run.h"

namespace official::report {

// Returns a bar (SVG) with the shares of data wait, sums over devices and the ops that take the most time, and a table
// of the ops, for each run that has a timeline; "" if none has.
std::string TimeBars(const std::vector<Run>& runs);

}  // namespace official::report
