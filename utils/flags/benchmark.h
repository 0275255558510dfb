// The flags of the benchmark log.
#pragma once

#include <optional>
#include <string>

#include "utils/flags/flag_group.h"

namespace official::flags {

struct BenchmarkConfig {
  std::optional<std::string> benchmark_logger_type;  // BaseBenchmarkLogger or BenchmarkFileLogger; unset: the latter
  std::optional<std::string> benchmark_test_id;
  std::optional<std::string> benchmark_log_dir;
};

FlagGroup BenchmarkFlags();

}  // namespace official::flags
