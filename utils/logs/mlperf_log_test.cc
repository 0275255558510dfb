#include "utils/logs/mlperf_log.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

namespace official::logs {
namespace {

using Keys = std::vector<std::string>;

absl::Time FixedTime() { return absl::FromUnixMicros(1533040496000789); }

std::string PathOf(const std::string& name) { return std::string(std::getenv("TEST_TMPDIR")) + "/" + name; }

std::unique_ptr<MlperfLog> Log(const std::string& path) { return MlperfLog::Open(path, FixedTime).value(); }

std::string Text(const std::string& path) { return files::ReadFile(path, 1 << 20).value(); }

// Of all lines, which must be whole.
Keys KeysIn(const std::string& path) {
  Keys keys;
  std::ifstream lines(path);
  for (std::string line; std::getline(lines, line);) {
    REQUIRE(line.substr(0, 9) == ":::MLLOG ");
    keys.push_back(nlohmann::json::parse(line.substr(9))["key"]);
  }
  return keys;
}

// What is left of a training that was stopped, and what another adds.
Keys GoOn(const std::string& path, bool resumed) {
  const auto log = Log(path);
  CHECK(log->Write("init_start").ok());
  CHECK(log->Begin(resumed).ok());
  CHECK(log->Write("eval_accuracy", 0.5).ok());
  return KeysIn(path);
}

TEST_CASE("Events are the lines that MLPerf's checker reads") {
  const std::string path = PathOf("lines");
  const auto log = Log(path);
  CHECK(log->Begin(/*resumed=*/false).ok());
  CHECK(log->Write("seed", 7, {}, "a.cc", 12).ok());
  CHECK(Text(path) ==
        R"(:::MLLOG {"namespace": "", "time_ms": 1533040496000, "event_type": "POINT_IN_TIME", "key": "seed", )"
        R"("value": 7, "metadata": {"file": "a.cc", "lineno": 12}})"
        "\n");
  CHECK(log->Write("epoch_start", nullptr, {{"epoch_num", 3}}, "b.cc", 4).ok());
  CHECK(log->Write("run_stop", nullptr, {{"status", "success"}}).ok());
  const std::string text = Text(path);
  CHECK_THAT(text, Catch::Contains(R"("event_type": "INTERVAL_START", "key": "epoch_start", "value": null, )"
                                   R"("metadata": {"file": "b.cc", "lineno": 4, "epoch_num": 3}})"));
  CHECK_THAT(text, Catch::Contains(R"("event_type": "INTERVAL_END", "key": "run_stop")"));
  CHECK_THAT(text, Catch::Contains(R"("file": "utils/logs/mlperf_log_test.cc", "lineno": )"));
}

TEST_CASE("Nothing is changed in the file before the log begins") {
  const std::string path = PathOf("waiting");
  const std::string earlier = ":::MLLOG of an earlier training\n";
  std::ofstream(path) << earlier;
  const auto log = Log(path);
  CHECK(log->Write("init_start").ok());
  CHECK(Text(path) == earlier);
  CHECK(log->Begin(/*resumed=*/false).ok());
  CHECK(KeysIn(path) == Keys{"init_start"});
}

TEST_CASE("A resumed training continues in the log of its earlier part") {
  const std::string path = PathOf("resumed");
  const auto log = Log(path);
  CHECK(log->Write("run_start").ok());
  CHECK(log->Begin(/*resumed=*/false).ok());
  SECTION("after complete lines") { CHECK(GoOn(path, true) == Keys{"run_start", "eval_accuracy"}); }
  SECTION("instead of a line that was cut") {
    std::ofstream(path, std::ios::app) << ":::MLLOG {\"namespace\": \"\", \"time";
    CHECK(GoOn(path, true) == Keys{"run_start", "eval_accuracy"});
  }
  SECTION("instead of its end") {
    CHECK(log->Write("run_stop", nullptr, {{"status", "aborted"}}).ok());
    CHECK(GoOn(path, true) == Keys{"run_start", "eval_accuracy"});
  }
  SECTION("unless it starts again") { CHECK(GoOn(path, false) == Keys{"init_start", "eval_accuracy"}); }
  SECTION("or nothing is left of that part") {
    std::ofstream(path) << ":::MLL";
    CHECK(GoOn(path, true) == Keys{"init_start", "eval_accuracy"});
  }
}

TEST_CASE("A file that is no log is refused, and stays as it is") {
  const std::string path = PathOf("ratings.csv");
  for (const std::string text : {"1,1,4,5\n", "1", ":::MLLOGS\n"}) {
    std::ofstream(path) << text;
    const absl::Status status = MlperfLog::Open(path).status();
    CHECK(absl::IsAlreadyExists(status));
    CHECK_THAT(std::string(status.message()), Catch::Contains(path) && Catch::Contains("log to another file"));
    CHECK(Text(path) == text);
  }
}

TEST_CASE("The directory is made; a log that cannot be written is one clear error") {
  const std::string path = PathOf("new/directory/log");
  CHECK(Log(path)->Begin(/*resumed=*/false).ok());
  const absl::Status status = MlperfLog::Open(path + "/log").status();
  CHECK(absl::IsFailedPrecondition(status));
  CHECK_THAT(std::string(status.message()), Catch::Contains(path) && Catch::Contains("Not a directory"));
}

}  // namespace
}  // namespace official::logs
