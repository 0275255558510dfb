// Timelines of a step's ops for chrome://tracing and Perfetto, laid out as TensorFlow's timeline.Timeline does.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace official::logs {

// One op that ran.
struct TraceEvent {
  std::string name{};                 // name of the node
  std::string op{};                   // type, e.g. "Conv2D"
  std::string result{};               // type of what it computed, e.g. "float32[100,10]"; may be empty
  std::string algorithm{};            // what computed it, e.g. "oneDNN jit:avx512_core"; may be empty
  std::vector<std::string> inputs{};  // names of the nodes that it read
  int64_t thread = 0;                 // ops of different threads never share a lane
  int64_t start_us = 0;               // microseconds since 1970
  int64_t duration_us = 0;
  std::optional<double> flops{};  // floating-point operations; nothing if they are not known
  int64_t bytes = 0;              // read and written; 0 if that is not known
};

// The ops that one device ran.
struct DeviceTrace {
  std::string device{};  // e.g. "/device:CPU:0"
  std::vector<TraceEvent> events{};
};

// Writes a Chrome trace: JSON {"traceEvents": [...]}, indented by 4; one process for every device, with ops in lanes so
// that those of one lane do not overlap. An existing file is replaced. Errors name the path and carry the system's
// reason.
absl::Status WriteChromeTrace(const std::string& path, absl::Span<const DeviceTrace> devices);

}  // namespace official::logs
