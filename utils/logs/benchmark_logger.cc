#include "utils/logs/benchmark_logger.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/files/files.h"
#include "utils/logs/log.h"
#include "utils/misc/run_files.h"

namespace official::logs {
namespace {

// Returns where the last whole line of the file ends: 0 if there is none.
absl::StatusOr<int64_t> EndOfLines(const files::RandomAccessFile& file) {
  constexpr int64_t kPartBytes = 1 << 12;
  std::string part;
  for (int64_t end = file.size(); end > 0; end -= static_cast<int64_t>(part.size())) {
    part.resize(std::min(end, kPartBytes));
    const int64_t begin = end - static_cast<int64_t>(part.size());
    RETURN_IF_ERROR(file.Read(begin, end - begin, part.data()));
    if (const size_t newline = part.rfind('\n'); newline != part.npos) return begin + static_cast<int64_t>(newline) + 1;
  }
  return 0;
}

// Removes what is behind the last whole line, if anything is.
absl::Status RemoveCutLine(const files::FileWriter& lines) {
  ASSIGN_OR_RETURN(const auto file, files::RandomAccessFile::Open(lines.path()));
  ASSIGN_OR_RETURN(const int64_t end, EndOfLines(*file));
  if (end == file->size()) return absl::OkStatus();
  if (files::RetryInterrupted([&] { return ftruncate(lines.fd(), end); }) == 0) return absl::OkStatus();
  return files::ErrnoStatus(errno, "truncate", lines.path());
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
  RETURN_IF_ERROR(CheckBenchmarkLogDir(directory));
  return std::unique_ptr<BenchmarkFileLogger>(new BenchmarkFileLogger(directory, std::move(clock)));
}

BenchmarkFileLogger::BenchmarkFileLogger(std::string directory, Clock clock)
    : BaseBenchmarkLogger(std::move(clock)), directory_(std::move(directory)) {}

absl::Status BenchmarkFileLogger::WriteMetric(const Json& record) {
  if (metrics_ == nullptr) {
    const std::string path = files::JoinPath(directory_, misc::kMetricLog);
    ASSIGN_OR_RETURN(auto metrics, files::FileWriter::Open(path, files::FileWriter::Mode::kAppend));
    RETURN_IF_ERROR(RemoveCutLine(*metrics));
    metrics_ = std::move(metrics);
  }
  absl::Status written = metrics_->Append(DumpJson(record) + "\n");
  written.Update(metrics_->Flush());
  if (!written.ok()) RemoveCutLine(*metrics_).IgnoreError();  // of a disk that is full
  return written;
}

absl::Status BenchmarkFileLogger::WriteRun(const Json& record) {
  return files::WriteFileAtomically(files::JoinPath(directory_, misc::kRunLog), DumpJson(record) + "\n");
}

absl::Status BenchmarkFileLogger::OnFinish(const absl::Status& run) {
  const std::unique_ptr<files::FileWriter> metrics = std::move(metrics_);
  return metrics == nullptr ? absl::OkStatus() : metrics->Close();
}

absl::Status CheckBenchmarkLogDir(const std::string& directory) {
  RETURN_IF_ERROR(files::CheckCanWriteIn(directory));
  for (const absl::string_view name : {misc::kMetricLog, misc::kRunLog}) {
    RETURN_IF_ERROR(files::CheckRegularOrMissing(files::JoinPath(directory, name)));
  }
  return absl::OkStatus();
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
