#include "utils/flags/benchmark.h"

#include "utils/flags/config_flag.h"

OFFICIAL_FLAG_GROUP(benchmark);

namespace official::flags {
namespace {

constexpr char kNoBigQuery[] = "records are written to --benchmark_log_dir; uploads to BigQuery are not supported";

}  // namespace
}  // namespace official::flags

OFFICIAL_FLAG(
    BenchmarkConfig, benchmark_logger_type,
    "Where metrics and the record of the run go. BenchmarkFileLogger: to metric.log and benchmark_run.log in "
    "--benchmark_log_dir, which it needs; BaseBenchmarkLogger: to the log only. BenchmarkBigQueryLogger is not "
    "supported.",
    .choices = {"BaseBenchmarkLogger", "BenchmarkFileLogger", "BenchmarkBigQueryLogger"},
    .unset_means = "files in --benchmark_log_dir", .per_worker = true);

OFFICIAL_FLAG(BenchmarkConfig, benchmark_test_id,
              "Any text that identifies the run; it is copied to benchmark_run.log (test_id).", .short_name = "bti",
              .per_worker = true);

OFFICIAL_FLAG(BenchmarkConfig, benchmark_log_dir, "Directory of metric.log and benchmark_run.log.", .short_name = "bld",
              .unset_means = "the value of --model_dir", .per_worker = true);

// Only the BigQuery logger would read these.
OFFICIAL_FLAG_WITHOUT_FIELD(std::optional<std::string>, gcp_project, std::nullopt, "Cloud project of BigQuery.",
                            .short_name = "gp", .not_used = kNoBigQuery, .per_worker = true);

OFFICIAL_FLAG_WITHOUT_FIELD(std::string, bigquery_data_set, "test_benchmark", "BigQuery data set of the records.",
                            .short_name = "bds", .not_used = kNoBigQuery, .per_worker = true);

OFFICIAL_FLAG_WITHOUT_FIELD(std::string, bigquery_run_table, "benchmark_run", "BigQuery table of the runs.",
                            .short_name = "brt", .not_used = kNoBigQuery, .per_worker = true);

OFFICIAL_FLAG_WITHOUT_FIELD(std::string, bigquery_run_status_table, "benchmark_run_status",
                            "BigQuery table of the state of the runs.", .short_name = "brst", .not_used = kNoBigQuery,
                            .per_worker = true);

OFFICIAL_FLAG_WITHOUT_FIELD(std::string, bigquery_metric_table, "benchmark_metric", "BigQuery table of the metrics.",
                            .short_name = "bmt", .not_used = kNoBigQuery, .per_worker = true);

namespace official::flags {
namespace {

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
  FlagGroup group = ThisGroup();
  group.validators = {LoggerHasItsDirectory};
  return group;
}

}  // namespace official::flags
