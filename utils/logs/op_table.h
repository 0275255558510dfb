// The ops of traced steps, summed up by what they compute and how.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "utils/logs/chrome_trace.h"

namespace official::logs {

// The ops of one type, result and algorithm.
struct OpRow {
  std::string op, result, algorithm;
  int64_t count = 0, us = 0;
  double flops = 0;   // 0: not known
  int64_t bytes = 0;  // 0: not known
};

class OpTable {
 public:
  // `own_kernels`: the algorithm of ops whose kernel names none.
  explicit OpTable(std::string own_kernels = "") : own_kernels_(std::move(own_kernels)) {}

  void Add(const DeviceTrace& trace);

  // The time of all ops, microseconds.
  int64_t us() const { return us_; }
  // Those that take the most time first.
  std::vector<OpRow> Rows() const;

 private:
  std::string own_kernels_;
  std::map<std::array<std::string, 3>, OpRow> rows_;
  int64_t us_ = 0;
};

}  // namespace official::logs
