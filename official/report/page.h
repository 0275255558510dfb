// The report as one HTML file.
#pragma once

#include <string>
#include <vector>

#include "official/report/run.h"

namespace official::report {

// Returns an HTML page about `runs`, of which there is at least one: graphs, each with a table of its values; what is
// known of machine, versions and flags, with the differences between runs marked; images that the runs recorded. The
// page has no scripts and refers to no other file. It fits phones, and follows the reader's choice of light or dark.
std::string Page(const std::vector<Run>& runs);

}  // namespace official::report
