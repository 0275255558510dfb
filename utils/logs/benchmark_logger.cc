#include "utils/logs/benchmark_logger.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/files/files.h"
#include "utils/logs/log.h"

namespace official::logs {
namespace {

constexpr char kMetricFile[] = "metric.log";
constexpr char kRunFile[] = "benchmark_run.log";

// Whether there is a file that holds something which does not end in a newline.
bool EndsInsideLine(const std::string& path) {
  const auto file = files::RandomAccessFile::Open(path);
  char last = '\n';
  return file.ok() && (*file)->size() > 0 && (*file)->Read((*file)->size() - 1, 1, &last).ok() && last != '\n';
}

}  // namespace

absl::Status BaseBenchmarkLogger::LogMetric(const Metric& metric) {
  std::vector<std::pair<std::string, std::string>> sorted = metric.extras;
  std::sort(sorted.begin(), sorted.end());
  Json::Array extras;
  for (const auto& [name, value] : sorted) extras.push_back(Json::Object{{"name", name}, {"value", value}});
  return WriteMetric(Json::Object{{"name", metric.name},
                                  {"value", metric.value},
                                  {"unit", metric.unit ? Json(*metric.unit) : Json()},
                                  {"global_step", metric.global_step ? Json(*metric.global_step) : Json()},
                                  {"timestamp", BenchmarkTimestamp(clock_())},
                                  {"extras", std::move(extras)}});
}

absl::Status BaseBenchmarkLogger::LogEvaluationResult(absl::Span<const std::pair<std::string, double>> results,
                                                      int64_t global_step) {
  std::vector<std::pair<std::string, double>> sorted(results.begin(), results.end());
  std::sort(sorted.begin(), sorted.end());
  for (const auto& [name, value] : sorted) {
    if (name == "global_step") continue;
    RETURN_IF_ERROR(LogMetric({.name = name, .value = value, .global_step = global_step}));
  }
  return absl::OkStatus();
}

absl::Status BaseBenchmarkLogger::LogRunInfo(const RunInfo& info) { return WriteRun(CollectRunInfo(info, clock_())); }

absl::Status BaseBenchmarkLogger::WriteMetric(const Json& record) {
  LOG(INFO) << "Benchmark metric: " << PythonRepr(record);
  return absl::OkStatus();
}

absl::Status BaseBenchmarkLogger::WriteRun(const Json& record) {
  LOG(INFO) << "Benchmark run: " << PythonRepr(record);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<BenchmarkFileLogger>> BenchmarkFileLogger::Create(const std::string& directory,
                                                                                 Clock clock) {
  RETURN_IF_ERROR(files::MakeDirectories(directory));
  if (files::RetryInterrupted([&] { return access(directory.c_str(), W_OK | X_OK); }) != 0) {
    return files::ErrnoStatus(errno, "write to directory", directory);
  }
  for (const char* name : {kMetricFile, kRunFile}) {
    RETURN_IF_ERROR(files::CheckRegularOrMissing(files::JoinPath(directory, name)));
  }
  return std::unique_ptr<BenchmarkFileLogger>(new BenchmarkFileLogger(directory, std::move(clock)));
}

BenchmarkFileLogger::BenchmarkFileLogger(std::string directory, Clock clock)
    : BaseBenchmarkLogger(std::move(clock)), directory_(std::move(directory)) {}

absl::Status BenchmarkFileLogger::WriteMetric(const Json& record) {
  std::string line = DumpJson(record) + "\n";
  if (metrics_ == nullptr) {
    const std::string path = files::JoinPath(directory_, kMetricFile);
    if (EndsInsideLine(path)) line.insert(line.begin(), '\n');
    ASSIGN_OR_RETURN(metrics_, files::FileWriter::Open(path, files::FileWriter::Mode::kAppend));
  }
  RETURN_IF_ERROR(metrics_->Append(line));
  return metrics_->Flush();
}

absl::Status BenchmarkFileLogger::WriteRun(const Json& record) {
  return files::WriteFileAtomically(files::JoinPath(directory_, kRunFile), DumpJson(record) + "\n");
}

absl::Status BenchmarkFileLogger::OnFinish(const absl::Status& run) {
  const std::unique_ptr<files::FileWriter> metrics = std::move(metrics_);
  return metrics == nullptr ? absl::OkStatus() : metrics->Close();
}

absl::StatusOr<std::unique_ptr<BaseBenchmarkLogger>> CreateBenchmarkLogger(absl::string_view type,
                                                                           const std::string& directory) {
  if (type == "BaseBenchmarkLogger") return std::make_unique<BaseBenchmarkLogger>();
  if (type == "BenchmarkFileLogger") {
    if (directory.empty()) {
      return absl::InvalidArgumentError(
          "--benchmark_logger_type=BenchmarkFileLogger needs a directory: set --benchmark_log_dir or --model_dir.");
    }
    return BenchmarkFileLogger::Create(directory);
  }
  if (type == "BenchmarkBigQueryLogger") {
    return absl::InvalidArgumentError(
        "--benchmark_logger_type=BenchmarkBigQueryLogger needs Google's BigQuery client, which this program does not "
        "have. Use BenchmarkFileLogger and upload its files: metric.log and benchmark_run.log are newline-delimited "
        "JSON, which `bq load` takes.");
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--benchmark_logger_type: unrecognized type '", type,
                   "'; it is one of BaseBenchmarkLogger, BenchmarkFileLogger, BenchmarkBigQueryLogger."));
}

}  // namespace official::logs
