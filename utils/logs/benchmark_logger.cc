#include "utils/logs/benchmark_logger.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/logs/log.h"

namespace official::logs {
namespace {

absl::Status WriteError(const std::string& path) {
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", path));
}

absl::Status WriteFully(int fd, absl::string_view text, const std::string& path) {
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return WriteError(path);
    text.remove_prefix(written);
  }
  return absl::OkStatus();
}

// Whether the file holds something that does not end in a newline.
bool EndsInsideLine(int fd) {
  const off_t size = lseek(fd, 0, SEEK_END);
  char last = '\n';
  return size > 0 && pread(fd, &last, 1, size - 1) == 1 && last != '\n';
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
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) {
    return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot make the benchmark log directory ", directory));
  }
  if (access(directory.c_str(), W_OK | X_OK) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot write to the benchmark log directory ", directory));
  }
  return std::unique_ptr<BenchmarkFileLogger>(new BenchmarkFileLogger(directory, std::move(clock)));
}

BenchmarkFileLogger::BenchmarkFileLogger(std::string directory, Clock clock)
    : BaseBenchmarkLogger(std::move(clock)), directory_(std::move(directory)) {}

BenchmarkFileLogger::~BenchmarkFileLogger() {
  if (metric_fd_ >= 0) close(metric_fd_);
}

absl::Status BenchmarkFileLogger::WriteMetric(const Json& record) {
  const std::string path = directory_ + "/metric.log";
  std::string line = DumpJson(record) + "\n";
  if (metric_fd_ < 0) {
    metric_fd_ = open(path.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (metric_fd_ < 0) return WriteError(path);
    if (EndsInsideLine(metric_fd_)) line.insert(line.begin(), '\n');
  }
  return WriteFully(metric_fd_, line, path);
}

absl::Status BenchmarkFileLogger::WriteRun(const Json& record) {
  const std::string path = directory_ + "/benchmark_run.log";
  const int fd = open(path.c_str(), O_WRONLY | O_TRUNC | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0) return WriteError(path);
  const absl::Status status = WriteFully(fd, DumpJson(record) + "\n", path);
  close(fd);
  return status;
}

absl::Status BenchmarkFileLogger::OnFinish(const absl::Status& run) {
  if (metric_fd_ < 0) return absl::OkStatus();
  const int result = close(std::exchange(metric_fd_, -1));
  return result == 0 ? absl::OkStatus() : WriteError(directory_ + "/metric.log");
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

absl::Status RunWithBenchmarkLogger(BaseBenchmarkLogger& logger, const std::function<absl::Status()>& body) {
  const absl::Status run = body();
  const absl::Status finish = logger.OnFinish(run);
  return run.ok() ? finish : run;
}

}  // namespace official::logs
