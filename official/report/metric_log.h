// metric.log, the metrics of a run.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "official/report/run.h"

namespace official::report {

// Adds the values of metric.log to curves. The extras of a training step's loss have the mode "train", which tells it
// from the loss of an evaluation; where no loss has them, as in logs of TensorFlow's programs, an evaluation's is known
// by other metrics of the same step, after or before which it stands in the order of names. Lines that are not JSON
// objects of a metric are counted in a note, except the last one if it has no end. Errors are those of files that
// cannot be opened or read.
absl::Status ReadMetricLog(const std::string& path, Curves& curves, std::vector<std::string>& notes);

}  // namespace official::report
