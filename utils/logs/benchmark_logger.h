// Metrics and run records in the schema of the official models: metric.log and benchmark_run.log.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/types/span.h"
#include "utils/files/files.h"
#include "utils/logs/json.h"
#include "utils/logs/run_info.h"

namespace official::logs {

struct Metric {
  std::string name;
  double value = 0;  // a float32 is widened: 2.3025851249694824
  std::optional<std::string> unit{};
  std::optional<int64_t> global_step{};
  std::vector<std::pair<std::string, std::string>> extras{};  // written sorted by name
};

// Writes every record to the log: "Benchmark metric: {...}" and "Benchmark run: {...}", as Python prints a dictionary.
// All loggers are for one thread.
class BaseBenchmarkLogger {
 public:
  using Clock = std::function<absl::Time()>;

  explicit BaseBenchmarkLogger(Clock clock = absl::Now) : clock_(std::move(clock)) {}
  virtual ~BaseBenchmarkLogger() = default;

  absl::Status LogMetric(const Metric& metric);

  // Logs one metric for each result, in the order of their names, except one that is named global_step.
  absl::Status LogEvaluationResult(absl::Span<const std::pair<std::string, double>> results, int64_t global_step);

  absl::Status LogRunInfo(const RunInfo& info);

  // Must be called once, at the end, with the status of the run.
  virtual absl::Status OnFinish(const absl::Status& run) { return absl::OkStatus(); }

 protected:
  virtual absl::Status WriteMetric(const Json& record);
  virtual absl::Status WriteRun(const Json& record);

 private:
  const Clock clock_;
};

// Appends metrics to <directory>/metric.log, one JSON object a line, written when LogMetric returns; replaces
// <directory>/benchmark_run.log. A file appears with its first record. A last line that a crash or a full disk cut
// off is removed.
class BenchmarkFileLogger : public BaseBenchmarkLogger {
 public:
  // Makes the directory. Errors name it and carry the system's reason: not allowed, not a directory, disk full.
  static absl::StatusOr<std::unique_ptr<BenchmarkFileLogger>> Create(const std::string& directory,
                                                                     Clock clock = absl::Now);

  absl::Status OnFinish(const absl::Status& run) override;

 protected:
  absl::Status WriteMetric(const Json& record) override;
  absl::Status WriteRun(const Json& record) override;

 private:
  BenchmarkFileLogger(std::string directory, Clock clock);

  const std::string directory_;
  std::unique_ptr<files::FileWriter> metrics_;  // metric.log; null before its first record
};

// Returns the error with which BenchmarkFileLogger::Create would fail; makes nothing.
absl::Status CheckBenchmarkLogDir(const std::string& directory);

// Returns the logger that --benchmark_logger_type names: BaseBenchmarkLogger or BenchmarkFileLogger, whose files go to
// `directory` (--benchmark_log_dir if that is set, else --model_dir). InvalidArgument for any other type; for
// BenchmarkBigQueryLogger it says what to use instead, since there is no BigQuery client here.
absl::StatusOr<std::unique_ptr<BaseBenchmarkLogger>> CreateBenchmarkLogger(absl::string_view type,
                                                                           const std::string& directory);

}  // namespace official::logs
