// metric.log, the metrics of a run.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "official/report/run.h"

namespace official::report {

// Adds the values of metric.log to curves. In metric.log the loss of an evaluation stands, in the order of names, after
// or before other metrics of the same step, which tells it from that of a training step. Lines that are not JSON
// objects of a metric are counted in a note, except the last one if it has no end. Errors are those of files that
// cannot be opened or read.
absl::Status ReadMetricLog(const std::string& path, Curves& curves, std::vector<std::string>& notes);

}  // namespace official::report
