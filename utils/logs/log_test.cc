#include "utils/logs/log.h"

#include <catch2/catch.hpp>
#include <thread>
#include <vector>

#include "absl/strings/str_split.h"
#include "utils/logs/captured_log.h"

namespace official::logs {
namespace {

using Catch::Matchers::Matches;

TEST_CASE("A line has its level, the time and the message") {
  CapturedLog log(LogFormat::kSimple);
  LOG(INFO) << "loss = " << 2.5 << ", step = " << 1;
  LOG(WARNING) << "slow";
  LOG(ERROR) << "lost";
  CHECK_THAT(log.Text(), Matches("I \\d\\d:\\d\\d:\\d\\d\\.\\d{3} loss = 2\\.5, step = 1\n"
                                 "W \\d\\d:\\d\\d:\\d\\d\\.\\d{3} slow\n"
                                 "E \\d\\d:\\d\\d:\\d\\d\\.\\d{3} lost\n"));
}

TEST_CASE("Colour is on the letter only") {
  CapturedLog log(LogFormat::kSimple, /*color=*/true);
  LOG(WARNING) << "slow";
  CHECK_THAT(log.Text(), Matches("\x1b\\[33mW\x1b\\[0m \\d\\d:\\d\\d:\\d\\d\\.\\d{3} slow\n"));
}

TEST_CASE("JSON lines have time, level, message, then the fields, and stay one line") {
  CapturedLog log(LogFormat::kJson, /*color=*/true);
  WriteLog(Severity::INFO, "two\n\"lines\"", {{"step", 7}});
  LOG(ERROR) << "lost";
  CHECK_THAT(log.Text(), Matches(R"RE(\{"time": "\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", "level": "info", )RE"
                                 R"RE("event": "message", "message": "two\\n\\"lines\\"", "step": 7\})RE"
                                 "\n"
                                 R"RE(\{"time": "[^"]*", "level": "error", "event": "error", "message": "lost"\})RE"
                                 "\n"));
}

TEST_CASE("none keeps warnings and errors, and does not evaluate what it drops") {
  CapturedLog log(LogFormat::kNone);
  int evaluated = 0;
  LOG(INFO) << ++evaluated;
  LOG(WARNING) << "slow";
  CHECK(evaluated == 0);
  CHECK_THAT(log.Text(), Matches("W [^ ]* slow\n"));
}

TEST_CASE("Fields are for JSON only") {
  CapturedLog log(LogFormat::kSimple);
  WriteLog(Severity::INFO, "text", {{"step", 7}});
  CHECK_THAT(log.Text(), Matches("I [^ ]* text\n"));
}

TEST_CASE("LOG is one statement") {
  CapturedLog log(LogFormat::kSimple);
  if (false)
    LOG(INFO) << "then";
  else
    LOG(INFO) << "else";
  CHECK_THAT(log.Text(), Matches("I [^ ]* else\n"));
}

TEST_CASE("The live line stays below what is logged, until it is removed") {
  CapturedLog log(LogFormat::kBar);
  ShowLiveLine("step 1");
  ShowLiveLine("step 2");
  LOG(INFO) << "saved";
  ShowLiveLine("");
  ShowLiveLine("");
  LOG(INFO) << "done";
  CHECK_THAT(log.Text(), Matches("\r\x1b\\[Kstep 1"
                                 "\r\x1b\\[Kstep 2"
                                 "\r\x1b\\[KI [^ ]* saved\nstep 2"
                                 "\r\x1b\\[K"
                                 "I [^ ]* done\n"));
}

TEST_CASE("The live line never fills the last column") {
  CapturedLog log(LogFormat::kBar);
  ShowLiveLine(std::string(200, 'x'));  // a file has no width: 80 columns
  CHECK(log.Text() == "\r\x1b[K" + std::string(79, 'x'));
}

TEST_CASE("Other formats have no live line") {
  CapturedLog log(LogFormat::kSimple);
  ShowLiveLine("step 1");
  CHECK(log.Text().empty());
}

TEST_CASE("Lines of many threads stay complete") {
  CapturedLog log(LogFormat::kSimple);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < 200; ++i)
        LOG(INFO) << "one"
                  << "two"
                  << "three";
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<std::string> lines = absl::StrSplit(log.Text(), '\n', absl::SkipEmpty());
  CHECK(lines.size() == 800);
  for (const std::string& line : lines) CHECK(line.substr(line.rfind(' ')) == " onetwothree");
}

TEST_CASE("A reader that has ended does not end the run") {
  InitLogging({LogFormat::kSimple, false}, /*fd=*/-1);
  LOG(ERROR) << "nobody sees this";
  InitLogging({});
}

}  // namespace
}  // namespace official::logs
