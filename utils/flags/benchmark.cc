#include "utils/flags/benchmark.h"

#include "absl/flags/flag.h"

ABSL_FLAG(std::string, benchmark_logger_type, "BaseBenchmarkLogger",
          "Accepted for TensorFlow's command lines: BaseBenchmarkLogger and BenchmarkFileLogger both write metric.log "
          "and benchmark_run.log to --benchmark_log_dir. BenchmarkBigQueryLogger is not supported.");
ABSL_FLAG(std::optional<std::string>, benchmark_test_id, std::nullopt,
          "Any text that identifies the run; it is copied to benchmark_run.log (test_id).");
ABSL_FLAG(std::optional<std::string>, benchmark_log_dir, std::nullopt,
          "Directory of metric.log and benchmark_run.log.");
// Accepted, so that command lines written for TensorFlow work; only the BigQuery logger would read them.
ABSL_FLAG(std::optional<std::string>, gcp_project, std::nullopt, "Not used: uploads to BigQuery are not supported.");
ABSL_FLAG(std::string, bigquery_data_set, "test_benchmark", "Not used: uploads to BigQuery are not supported.");
ABSL_FLAG(std::string, bigquery_run_table, "benchmark_run", "Not used: uploads to BigQuery are not supported.");
ABSL_FLAG(std::string, bigquery_run_status_table, "benchmark_run_status",
          "Not used: uploads to BigQuery are not supported.");
ABSL_FLAG(std::string, bigquery_metric_table, "benchmark_metric", "Not used: uploads to BigQuery are not supported.");

namespace official::flags {
namespace {

absl::Status LoggerHasItsDirectory(const CommandLine&) {
  const std::string type = absl::GetFlag(FLAGS_benchmark_logger_type);
  if (type == "BenchmarkBigQueryLogger") {
    return FlagError("benchmark_logger_type",
                     "uploads to BigQuery are not supported; BenchmarkFileLogger writes the same records to files");
  }
  if (type == "BenchmarkFileLogger" && !absl::GetFlag(FLAGS_benchmark_log_dir).has_value()) {
    return FlagError("benchmark_logger_type", "needs --benchmark_log_dir, the directory to write to");
  }
  return absl::OkStatus();
}

}  // namespace

FlagGroup BenchmarkFlags() {
  return {
      .name = "benchmark",
      .flags =
          {
              {.name = "benchmark_logger_type",
               .choices = {"BaseBenchmarkLogger", "BenchmarkFileLogger", "BenchmarkBigQueryLogger"}},
              {.name = "benchmark_test_id", .short_name = "bti"},
              {.name = "benchmark_log_dir", .short_name = "bld", .unset_means = "the value of --model_dir"},
              {.name = "gcp_project", .short_name = "gp"},
              {.name = "bigquery_data_set", .short_name = "bds"},
              {.name = "bigquery_run_table", .short_name = "brt"},
              {.name = "bigquery_run_status_table", .short_name = "brst"},
              {.name = "bigquery_metric_table", .short_name = "bmt"},
          },
      .validators = {LoggerHasItsDirectory},
  };
}

BenchmarkConfig BenchmarkFromFlags() {
  return {
      .benchmark_logger_type = absl::GetFlag(FLAGS_benchmark_logger_type),
      .benchmark_test_id = absl::GetFlag(FLAGS_benchmark_test_id),
      .benchmark_log_dir = absl::GetFlag(FLAGS_benchmark_log_dir),
  };
}

}  // namespace official::flags
