#include "utils/logs/profile_hook.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>

#include "utils/files/files.h"
#include "utils/logs/captured_log.h"

namespace official::logs {
namespace {

// Runs steps first..last of a hook on traces of ops that take 2, 2 and 1 ms of the 10 ms of a step, after a wait of 10.
void RunSteps(Hook& hook, int first, int last) {
  using std::chrono::milliseconds;
  TimePoint now{};
  for (int step = first; step <= last; ++step) {
    now += milliseconds(10);
    const bool wanted = hook.BeforeStep(step, now).trace;
    now += milliseconds(10);
    const TraceEvent product = {
        .op = "MatMul", .result = "float32[2,3]", .duration_us = 2000, .flops = 4e6, .bytes = 6'000'000};
    const DeviceTrace trace = {.device = "/device:CPU:0",
                               .events = {product, {.op = "AllReduceDone", .duration_us = 1000}, product}};
    REQUIRE(hook.AfterStep({.global_step = step,
                            .data_wait = milliseconds(10),
                            .time = now,
                            .trace = absl::MakeConstSpan(&trace, wanted ? 1 : 0)})
                .ok());
  }
}

std::string ProfileDir() { return std::getenv("TEST_TMPDIR"); }

TEST_CASE("A profile tells where the time of its steps goes, once, and writes their timeline") {
  CapturedLog log(LogFormat::kSimple);
  const auto hook =
      MakeProfileHook({.first_step = 3, .last_step = 5, .model_dir = ProfileDir(), .own_kernels = "own, AVX2"});
  RunSteps(*hook, 1, 4);
  CHECK(log.Text().empty());
  RunSteps(*hook, 5, 9);
  REQUIRE(hook->EndRun(true).ok());
  const std::string path = ProfileDir() + "/profile-3-5.json";
  // In a step: 4 of 20 ms are products, 8e6 operations and 12e6 bytes in 4 ms.
  CHECK_THAT(log.Text(),
             Catch::EndsWith("profile of steps 3 to 5 on /device:CPU:0: 3 steps of 20 ms, if each op is timed\n"
                             "of the time: waits for data 50.0%, sums over devices 5.0%, other ops 20.0%, between ops "
                             "25.0%\n"
                             " share  calls   ms/step  GFLOP/s    GB/s  op             result        algorithm\n"
                             " 20.0%      6     4.000      2.0     3.0  MatMul         float32[2,3]  own, AVX2\n"
                             "  5.0%      3     1.000        -       -  AllReduceDone                own, AVX2\n"
                             "as a timeline, for chrome://tracing or Perfetto: " +
                             path + "\n"));
  const nlohmann::json trace = nlohmann::json::parse(files::ReadFile(path, 1 << 20).value());
  std::map<std::string, int> ops;
  for (const nlohmann::json& event : trace["traceEvents"]) {
    if (event["ph"] == "X") ++ops[event["name"]];
  }
  CHECK(ops == std::map<std::string, int>{{"MatMul", 6}, {"AllReduceDone", 3}, {"DataWait", 3}});
}

TEST_CASE("A profile of a run that ends before has the steps that there are, or none") {
  CapturedLog log(LogFormat::kSimple);
  const auto shorter = MakeProfileHook({.first_step = 3, .last_step = 8, .model_dir = ProfileDir()});
  RunSteps(*shorter, 1, 4);
  REQUIRE(shorter->EndRun(true).ok());
  CHECK_THAT(log.Text(), Catch::Contains("profile of steps 3 to 4 on") && Catch::Contains("2 steps of 20 ms"));
  const auto none = MakeProfileHook({.first_step = 30, .last_step = 31, .model_dir = ProfileDir()});
  RunSteps(*none, 1, 4);
  REQUIRE(none->EndRun(true).ok());
  CHECK_THAT(log.Text(), Catch::Contains("nothing is profiled: the run had no step from 30 to 31"));
}

}  // namespace
}  // namespace official::logs
