// Which curves of which runs are in one graph, and the names of the runs.
#pragma once

#include <string>
#include <vector>

#include "official/report/chart.h"
#include "official/report/run.h"

namespace official::report {

// Returns a graph for each name of a curve that any run has: the loss first, then what evaluations measure, then other
// values of the training, the learning rate and the speed. The graphs refer to the runs.
std::vector<Chart> ChartsOf(const std::vector<Run>& runs);

// Returns the keys of a run's curves in the order of the graphs.
std::vector<CurveKey> SortedKeys(const Run& run);

// Returns the title of the curves of this name.
std::string TitleOf(const std::string& name);

}  // namespace official::report
