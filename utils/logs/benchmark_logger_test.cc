#include "utils/logs/benchmark_logger.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "utils/logs/captured_log.h"

namespace official::logs {
namespace {

using Catch::Matchers::Contains;

// 2018-07-31 12:34:56.000789 UTC
absl::Time FixedTime() { return absl::FromUnixMicros(1533040496000789); }
constexpr char kTimestamp[] = "2018-07-31T12:34:56.000789Z";

std::string ReadFile(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

// A directory that does not exist yet, for one test.
std::string NewDirectory(const std::string& name) {
  const std::string path = std::string(std::getenv("TEST_TMPDIR")) + "/" + name;
  std::filesystem::remove_all(path);
  return path;
}

std::unique_ptr<BenchmarkFileLogger> FileLogger(const std::string& directory) {
  return BenchmarkFileLogger::Create(directory, FixedTime).value();
}

std::string MetricLine(const std::string& name, const std::string& value, const std::string& global_step) {
  return R"({"name": ")" + name + R"(", "value": )" + value + R"(, "unit": null, "global_step": )" + global_step +
         R"(, "timestamp": "2018-07-31T12:34:56.000789Z", "extras": []})" + "\n";
}

TEST_CASE("The type of the flag makes the logger") {
  const std::string directory = NewDirectory("by_type");
  CHECK(CreateBenchmarkLogger("BaseBenchmarkLogger", "").ok());
  CHECK_FALSE(std::filesystem::exists(directory));
  auto file_logger = CreateBenchmarkLogger("BenchmarkFileLogger", directory);
  CHECK(dynamic_cast<BenchmarkFileLogger*>(file_logger.value().get()) != nullptr);
  CHECK(std::filesystem::is_directory(directory));
}

TEST_CASE("A logger that cannot be had is refused with what would work") {
  const auto message = [](const char* type) {
    const absl::Status status = CreateBenchmarkLogger(type, "").status();
    CHECK(absl::IsInvalidArgument(status));
    return std::string(status.message());
  };
  CHECK_THAT(message("BenchmarkFileLogger"), Contains("--benchmark_log_dir"));
  CHECK_THAT(message("BenchmarkBigQueryLogger"), Contains("Use BenchmarkFileLogger"));
  CHECK_THAT(message("benchmarkfilelogger"), Contains("unrecognized type 'benchmarkfilelogger'"));
}

TEST_CASE("The base logger prints records as Python dictionaries") {
  CapturedLog log(LogFormat::kSimple);
  BaseBenchmarkLogger logger(FixedTime);
  REQUIRE(
      logger.LogMetric({.name = "accuracy", .value = 0.999, .global_step = 10000, .extras = {{"name", "value"}}}).ok());
  CHECK_THAT(log.Text(), Contains("Benchmark metric: {'name': 'accuracy', 'value': 0.999, 'unit': None, "
                                  "'global_step': 10000, 'timestamp': '2018-07-31T12:34:56.000789Z', "
                                  "'extras': [{'name': 'name', 'value': 'value'}]}\n"));
  REQUIRE(logger.LogRunInfo({.model_name = "resnet", .dataset_name = "CIFAR-10"}).ok());
  CHECK_THAT(log.Text(), Contains("Benchmark run: {'model_name': 'resnet', 'dataset': {'name': 'CIFAR-10'}, "));
}

TEST_CASE("metric.log has one object a line, field for field as upstream") {
  const std::string directory = NewDirectory("metrics/of/a/new/directory");
  const auto logger = FileLogger(directory);
  const std::string path = directory + "/metric.log";
  CHECK_FALSE(std::filesystem::exists(path));

  REQUIRE(logger->LogMetric({.name = "accuracy", .value = 0.999, .global_step = 10000, .extras = {{"name", "value"}}})
              .ok());
  const std::string first =
      R"({"name": "accuracy", "value": 0.999, "unit": null, "global_step": 10000, )"
      R"("timestamp": "2018-07-31T12:34:56.000789Z", "extras": [{"name": "name", "value": "value"}]})"
      "\n";
  CHECK(ReadFile(path) == first);  // before the logger is closed

  REQUIRE(logger->LogMetric({.name = "loss", .value = 0.02, .global_step = 10000}).ok());
  CHECK(ReadFile(path) == first + MetricLine("loss", "0.02", "10000"));
}

TEST_CASE("metric.log: unset fields are null, extras sorted, a float32 is widened") {
  const std::string directory = NewDirectory("fields");
  const auto logger = FileLogger(directory);
  REQUIRE(
      logger->LogMetric({.name = "loss", .value = 2.3025851f, .unit = "nats", .extras = {{"b", "2"}, {"a", "\u00e9"}}})
          .ok());
  CHECK(ReadFile(directory + "/metric.log") ==
        R"({"name": "loss", "value": 2.3025851249694824, "unit": "nats", "global_step": null, )"
        R"("timestamp": "2018-07-31T12:34:56.000789Z", )"
        R"("extras": [{"name": "a", "value": "\u00e9"}, {"name": "b", "value": "2"}]})"
        "\n");
}

TEST_CASE("metric.log: evaluation results in the order of their names, without global_step") {
  const std::string directory = NewDirectory("evaluation");
  const auto logger = FileLogger(directory);
  REQUIRE(
      logger->LogEvaluationResult({{"loss", 0.46237424}, {"global_step", 207082}, {"accuracy", 0.9285}}, 207082).ok());
  CHECK(ReadFile(directory + "/metric.log") ==
        MetricLine("accuracy", "0.9285", "207082") + MetricLine("loss", "0.46237424", "207082"));
}

TEST_CASE("Values that are not finite are null, so that each line is JSON for any reader") {
  const std::string directory = NewDirectory("not_finite");
  const auto logger = FileLogger(directory);
  for (const double value : {std::nan(""), HUGE_VAL, -HUGE_VAL}) {
    REQUIRE(logger->LogMetric({.name = "loss", .value = value, .global_step = 1}).ok());
  }
  REQUIRE(logger->LogRunInfo({.run_parameters = {{"clip_norm", HUGE_VAL}}}).ok());
  std::ifstream metrics(directory + "/metric.log");
  int lines = 0;
  for (std::string line; std::getline(metrics, line); ++lines) {
    CHECK(nlohmann::json::parse(line).at("value").is_null());  // throws for what is not JSON
  }
  CHECK(lines == 3);
  const nlohmann::json run = nlohmann::json::parse(ReadFile(directory + "/benchmark_run.log"));
  CHECK(run.at("run_parameters")[0].at("float_value").is_null());
}

TEST_CASE("metric.log: a later run appends, in place of a line that a crash cut off") {
  const std::string directory = NewDirectory("append");
  REQUIRE(FileLogger(directory)->LogMetric({.name = "a", .value = 1, .global_step = 1}).ok());
  REQUIRE(FileLogger(directory)->LogMetric({.name = "b", .value = 2, .global_step = 2}).ok());
  const std::string path = directory + "/metric.log";
  CHECK(ReadFile(path) == MetricLine("a", "1.0", "1") + MetricLine("b", "2.0", "2"));

  const std::string long_name(10000, 'c');
  for (const std::string& whole : {std::string(), MetricLine("a", "1.0", "1")}) {
    for (const std::string& cut : {std::string("{"), R"({"name": ")" + long_name}) {
      std::ofstream(path) << whole << cut;
      REQUIRE(FileLogger(directory)->LogMetric({.name = "d", .value = 3, .global_step = 3}).ok());
      CHECK(ReadFile(path) == whole + MetricLine("d", "3.0", "3"));
    }
  }
}

TEST_CASE("metric.log is closed at the end of the run") {
  const std::string directory = NewDirectory("finish");
  const auto logger = FileLogger(directory);
  CHECK(logger->OnFinish(absl::OkStatus()).ok());  // nothing was logged
  REQUIRE(logger->LogMetric({.name = "a", .value = 1, .global_step = 1}).ok());
  CHECK(logger->OnFinish(absl::OkStatus()).ok());
  CHECK(ReadFile(directory + "/metric.log") == MetricLine("a", "1.0", "1"));
}

TEST_CASE("A directory that cannot be made, and a log that cannot be written, are errors with their path") {
  const std::string file = NewDirectory("a_file");
  std::ofstream(file) << "x";
  const absl::Status not_a_directory = BenchmarkFileLogger::Create(file + "/logs").status();
  CHECK_THAT(std::string(not_a_directory.message()), Contains("cannot create directory " + file + "/logs"));

  const std::string directory = NewDirectory("in_the_way");
  const auto logger = FileLogger(directory);
  std::filesystem::create_directory(directory + "/metric.log");
  std::filesystem::create_directory(directory + "/benchmark_run.log");
  CHECK_THAT(std::string(logger->LogMetric({.name = "a", .value = 1}).message()),
             Contains("cannot create " + directory + "/metric.log"));
  CHECK_THAT(std::string(logger->LogRunInfo({}).message()),
             Contains("cannot rename ") && Contains(directory + "/benchmark_run.log: Is a directory"));
}

TEST_CASE("Links and pipes in place of the logs are refused before anything is logged") {
  for (const std::string name : {"metric.log", "benchmark_run.log"}) {
    const std::string directory = NewDirectory("link_" + name), path = directory + "/" + name;
    std::filesystem::create_directories(directory);
    std::ofstream(directory + "/precious") << "precious";
    std::filesystem::create_symlink("precious", path);
    const absl::Status link = BenchmarkFileLogger::Create(directory).status();
    CHECK(absl::IsFailedPrecondition(link));
    CHECK_THAT(std::string(link.message()), Contains(path + ": it is a symbolic link"));
    std::filesystem::remove(path);
    REQUIRE(mkfifo(path.c_str(), 0666) == 0);
    CHECK_THAT(std::string(BenchmarkFileLogger::Create(directory).status().message()), Contains("it is a pipe"));
    std::filesystem::remove(path);

    // Who puts the link there later reaches no more.
    const auto logger = FileLogger(directory);
    std::filesystem::create_symlink("precious", path);
    logger->LogMetric({.name = "a", .value = 1}).IgnoreError();
    logger->LogRunInfo({}).IgnoreError();
    CHECK(ReadFile(directory + "/precious") == "precious");
  }
}

TEST_CASE("A full disk is an error, and leaves no part of a record") {
  const std::string directory = NewDirectory("full"), path = directory + "/metric.log";
  const auto logger = FileLogger(directory);
  const std::string first = MetricLine("a", "1.0", "1");
  REQUIRE(logger->LogMetric({.name = "a", .value = 1, .global_step = 1}).ok());
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before;
  REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
  const rlimit small = {first.size() + 10, before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
  const absl::Status status = logger->LogMetric({.name = "b", .value = 2, .global_step = 2});
  setrlimit(RLIMIT_FSIZE, &before);
  CHECK(absl::IsAborted(status));
  CHECK(ReadFile(path) == first);
  REQUIRE(logger->LogMetric({.name = "c", .value = 3, .global_step = 3}).ok());
  CHECK(ReadFile(path) == first + MetricLine("c", "3.0", "3"));
}

TEST_CASE("benchmark_run.log holds the last run only") {
  const std::string directory = NewDirectory("run");
  const auto logger = FileLogger(directory);
  REQUIRE(logger->LogRunInfo({.model_name = "a model with a long name", .dataset_name = "ImageNet"}).ok());
  REQUIRE(logger->LogRunInfo({.model_name = "resnet", .dataset_name = "CIFAR-10"}).ok());
  const std::string text = ReadFile(directory + "/benchmark_run.log");
  CHECK_THAT(text, Catch::Matchers::StartsWith(R"({"model_name": "resnet", "dataset": {"name": "CIFAR-10"}, )"));
  CHECK_THAT(text, Contains(std::string(R"("test_id": null, "run_date": ")") + kTimestamp));
  CHECK(std::count(text.begin(), text.end(), '\n') == 1);
  CHECK(text.back() == '\n');
}

}  // namespace
}  // namespace official::logs
