#include "utils/logs/op_table.h"

#include <algorithm>

namespace official::logs {

void OpTable::Add(const DeviceTrace& trace) {
  for (const TraceEvent& event : trace.events) {
    OpRow& row = rows_[{event.op, event.result, event.algorithm}];
    if (row.count == 0) {
      row.op = event.op;
      row.result = event.result;
      row.algorithm = event.algorithm.empty() ? own_kernels_ : event.algorithm;
    }
    ++row.count;
    row.us += event.duration_us;
    row.flops += event.flops.value_or(0);
    row.bytes += event.bytes;
    us_ += event.duration_us;
  }
}

std::vector<OpRow> OpTable::Rows() const {
  std::vector<OpRow> rows;
  for (const auto& [key, row] : rows_) rows.push_back(row);
  std::stable_sort(rows.begin(), rows.end(), [](const OpRow& a, const OpRow& b) { return a.us > b.us; });
  return rows;
}

}  // namespace official::logs
