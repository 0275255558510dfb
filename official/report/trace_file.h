// Timelines of steps: profile-START-STOP.json of --profile, timeline-N.json of ProfilerHook.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace official::report {

// The ops of one type.
struct OpTime {
  std::string op;  // "DataWait": waits for data; "AllReduce...": sums over devices, with the waits for others
  double us = 0;
  int64_t count = 0;
  double flops = 0;  // 0: not known
  double bytes = 0;  // 0: not known
};

// Returns the ops of a Chrome trace, those that take the most time first. DataLoss if it is none. The memory used does
// not depend on the number of its events.
absl::StatusOr<std::vector<OpTime>> ReadTrace(const std::string& path);

// Returns the file among `names` that a report shows: the profile of the latest steps, else the latest timeline; "" if
// there is none.
std::string LatestTrace(const std::vector<std::string>& names);

}  // namespace official::report
