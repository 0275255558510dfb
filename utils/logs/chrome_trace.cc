#include "utils/logs/chrome_trace.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "utils/files/files.h"
#include "utils/logs/json.h"

namespace official::logs {
namespace {

Json ProcessName(int64_t pid, const std::string& name) {
  return Json::Object{{"name", "process_name"}, {"ph", "M"}, {"pid", pid}, {"args", Json::Object{{"name", name}}}};
}

Json OpEvent(const TraceEvent& event, int64_t pid, int64_t lane) {
  Json::Object args = {{"name", event.name}, {"op", event.op}};
  if (!event.result.empty()) args.emplace_back("result", event.result);
  if (!event.algorithm.empty()) args.emplace_back("algorithm", event.algorithm);
  if (event.flops) args.emplace_back("flops", *event.flops);
  if (event.bytes > 0) args.emplace_back("bytes", event.bytes);
  for (size_t i = 0; i < event.inputs.size(); ++i) args.emplace_back(absl::StrCat("input", i), event.inputs[i]);
  return Json::Object{{"ph", "X"},   {"cat", "Op"},          {"name", event.op},         {"pid", pid},
                      {"tid", lane}, {"ts", event.start_us}, {"dur", event.duration_us}, {"args", std::move(args)}};
}

// Gives every op the first lane of its thread that is free when it starts.
class Lanes {
 public:
  int64_t Assign(const TraceEvent& event) {
    const auto lane = std::find_if(lanes_.begin(), lanes_.end(), [&](const Lane& l) {
      return l.thread == event.thread && l.free_from_us <= event.start_us;
    });
    const int64_t index = lane - lanes_.begin();
    if (lane == lanes_.end()) lanes_.push_back({event.thread, 0});
    lanes_[index].free_from_us = event.start_us + event.duration_us;
    return index;
  }

 private:
  struct Lane {
    int64_t thread;
    int64_t free_from_us;
  };
  std::vector<Lane> lanes_;
};

std::vector<TraceEvent> SortedByStart(std::vector<TraceEvent> events) {
  std::stable_sort(events.begin(), events.end(),
                   [](const TraceEvent& a, const TraceEvent& b) { return a.start_us < b.start_us; });
  return events;
}

}  // namespace

absl::Status WriteChromeTrace(const std::string& path, absl::Span<const DeviceTrace> devices) {
  // Process 0 is TensorFlow's memory counters; "Tensors" their snapshots. Both are named though empty, so that a device
  // has the same pid in its timelines and in ours.
  Json::Array events = {ProcessName(0, "Allocators")};
  for (size_t d = 0; d < devices.size(); ++d) {
    events.push_back(ProcessName(2 * d + 1, devices[d].device + " Compute"));
    events.push_back(ProcessName(2 * d + 2, devices[d].device + " Tensors"));
  }
  for (size_t d = 0; d < devices.size(); ++d) {
    Lanes lanes;
    for (const TraceEvent& event : SortedByStart(devices[d].events)) {
      events.push_back(OpEvent(event, 2 * d + 1, lanes.Assign(event)));
    }
  }
  return files::WriteFileAtomically(path, DumpJson(Json::Object{{"traceEvents", std::move(events)}}, /*indent=*/4));
}

}  // namespace official::logs
