#include "utils/flags/benchmark.h"

#include "absl/flags/flag.h"

ABSL_FLAG(std::optional<std::string>, benchmark_logger_type, std::nullopt,
          "Where metrics and the record of the run go. BenchmarkFileLogger: to metric.log and benchmark_run.log in "
          "--benchmark_log_dir, which it needs; BaseBenchmarkLogger: to the log only. BenchmarkBigQueryLogger is not "
          "supported.");
ABSL_FLAG(std::optional<std::string>, benchmark_test_id, std::nullopt,
          "Any text that identifies the run; it is copied to benchmark_run.log (test_id).");
ABSL_FLAG(std::optional<std::string>, benchmark_log_dir, std::nullopt,
          "Directory of metric.log and benchmark_run.log.");
// Only the BigQuery logger would read these.
ABSL_FLAG(std::optional<std::string>, gcp_project, std::nullopt, "Cloud project of BigQuery.");
ABSL_FLAG(std::string, bigquery_data_set, "test_benchmark", "BigQuery data set of the records.");
ABSL_FLAG(std::string, bigquery_run_table, "benchmark_run", "BigQuery table of the runs.");
ABSL_FLAG(std::string, bigquery_run_status_table, "benchmark_run_status", "BigQuery table of the state of the runs.");
ABSL_FLAG(std::string, bigquery_metric_table, "benchmark_metric", "BigQuery table of the metrics.");

namespace official::flags {
namespace {

constexpr char kNoBigQuery[] = "records are written to --benchmark_log_dir; uploads to BigQuery are not supported";

absl::Status LoggerHasItsDirectory(const CommandLine&) {
  const std::string type = absl::GetFlag(FLAGS_benchmark_logger_type).value_or("");
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
               .choices = {"BaseBenchmarkLogger", "BenchmarkFileLogger", "BenchmarkBigQueryLogger"},
               .unset_means = "files in --benchmark_log_dir"},
              {.name = "benchmark_test_id", .short_name = "bti"},
              {.name = "benchmark_log_dir", .short_name = "bld", .unset_means = "the value of --model_dir"},
              {.name = "gcp_project", .short_name = "gp", .not_used = kNoBigQuery},
              {.name = "bigquery_data_set", .short_name = "bds", .not_used = kNoBigQuery},
              {.name = "bigquery_run_table", .short_name = "brt", .not_used = kNoBigQuery},
              {.name = "bigquery_run_status_table", .short_name = "brst", .not_used = kNoBigQuery},
              {.name = "bigquery_metric_table", .short_name = "bmt", .not_used = kNoBigQuery},
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
