#include "utils/train/train_hooks.h"

#include <array>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "utils/logs/benchmark_logger.h"
#include "utils/logs/captured_log.h"
#include "utils/logs/json.h"

namespace official::train {
namespace {

TEST_CASE("The time of the first step is told once") {
  logs::CapturedLog log(logs::LogFormat::kSimple);
  const auto hook = MakeFirstStepHook();
  REQUIRE(hook->AfterStep({.global_step = 1}).ok());
  REQUIRE(hook->AfterStep({.global_step = 2}).ok());
  const std::string text = log.Text();
  CHECK_THAT(text, Catch::Matchers::Matches(".*first training step done [0-9]+ ms after process start\n"));
  CHECK(text.find("first") == text.rfind("first"));
}

// A step with two ops of one kind and another one.
logs::DeviceTrace StepTrace(int64_t us) {
  const logs::TraceEvent product = {.op = "MatMul", .result = "float32[2,3]", .algorithm = "oneDNN", .duration_us = us};
  return {.device = "/device:CPU:0", .events = {product, {.op = "Relu", .duration_us = 2 * us}, product}};
}

TEST_CASE("The plan is that of the fastest of the third to fifth step, and is told once") {
  logs::CapturedLog log(logs::LogFormat::kSimple);
  const auto hook = MakePlanHook("own, AVX2");
  for (int step = 1; step <= 7; ++step) {
    const bool wanted = step <= 5;
    CHECK(hook->BeforeStep(step, {}).trace == wanted);
    const logs::DeviceTrace trace = StepTrace(step <= 2 ? 1000 : step == 4 ? 2000 : 3000);
    REQUIRE(hook->AfterStep({.global_step = step, .trace = absl::MakeConstSpan(&trace, wanted ? 1 : 0)}).ok());
    CHECK(log.Text().empty() == (step < 5));
  }
  REQUIRE(hook->End({}).ok());
  CHECK_THAT(log.Text(), Catch::EndsWith("plan of a step on /device:CPU:0, which takes 8 ms if each op is timed\n"
                                         " share   ops        ms  op      result        algorithm\n"
                                         " 50.0%     2     4.000  MatMul  float32[2,3]  oneDNN\n"
                                         " 50.0%     1     4.000  Relu                  own, AVX2\n"));
}

TEST_CASE("The plan of a run of fewer steps is that of its last one, in JSON with all fields") {
  logs::CapturedLog log(logs::LogFormat::kJson);
  const auto hook = MakePlanHook("own, AVX2");
  for (int step = 1; step <= 2; ++step) {
    const logs::DeviceTrace trace = StepTrace(1000 * step);
    REQUIRE(hook->AfterStep({.global_step = step, .trace = absl::MakeConstSpan(&trace, 1)}).ok());
  }
  CHECK(log.Text().empty());
  REQUIRE(hook->End({}).ok());
  CHECK_THAT(log.Text(), Catch::Contains(R"("event": "plan")") && Catch::Contains(R"("device": "/device:CPU:0")") &&
                             Catch::Contains(R"("algorithm": "oneDNN", "count": 2, "ms": 4)"));
}

// Keeps what is logged.
class KeptRecords : public logs::BaseBenchmarkLogger {
 public:
  const std::vector<std::string>& records() const { return records_; }

 private:
  absl::Status WriteMetric(const logs::Json& record) override {
    records_.push_back(logs::DumpJson(record));
    return absl::OkStatus();
  }
  std::vector<std::string> records_;
};

TEST_CASE("The loss is logged once for each multiple that a step passes, though other workers make steps, too") {
  KeptRecords logger;
  const auto hook = MakeLossMetricHook(&logger, /*every_n_steps=*/10);
  REQUIRE(hook->Begin({.global_step = 25}).ok());
  // The step that is expected, the one that it was, and what has been logged then.
  const std::vector<std::array<int, 3>> steps = {{26, 28, 0}, {30, 30, 1}, {31, 39, 1}, {40, 41, 2}, {42, 43, 2},
                                                 {44, 50, 2}, {51, 52, 3}, {53, 54, 3}, {75, 76, 4}, {78, 78, 4}};
  for (const auto& [expected, was, logged] : steps) {
    const bool wants_loss = hook->BeforeStep(expected, {}).loss;
    logs::StepInfo step = {.global_step = was};
    if (wants_loss) step.loss = 0.5;
    REQUIRE(hook->AfterStep(step).ok());
    CHECK(static_cast<int>(logger.records().size()) == logged);
  }
}

TEST_CASE("The record of a loss tells that it is of training") {
  KeptRecords logger;
  const auto hook = MakeLossMetricHook(&logger, /*every_n_steps=*/1);
  REQUIRE(hook->Begin({.global_step = 0}).ok());
  REQUIRE(hook->BeforeStep(1, {}).loss);
  REQUIRE(hook->AfterStep({.global_step = 1, .loss = 0.5}).ok());
  REQUIRE(logger.LogEvaluationResult({{"loss", 0.25}}, /*global_step=*/1).ok());
  REQUIRE(logger.records().size() == 2);
  CHECK_THAT(logger.records()[0], Catch::Contains(R"("value": 0.5,)") &&
                                      Catch::EndsWith(R"("extras": [{"name": "mode", "value": "train"}]})"));
  CHECK_THAT(logger.records()[1], Catch::Contains(R"("value": 0.25,)") && Catch::EndsWith(R"("extras": []})"));
}

}  // namespace
}  // namespace official::train
