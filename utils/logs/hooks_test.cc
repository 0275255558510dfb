#include "utils/logs/hooks.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>

#include "utils/logs/captured_log.h"
#include "utils/logs/hooks_helper.h"

namespace official::logs {
namespace {

using Catch::Matchers::Contains;
using Catch::Matchers::Matches;
using std::chrono::milliseconds;

// Keeps "name=value@global_step" of every metric.
class RecordingLogger : public BaseBenchmarkLogger {
 public:
  std::vector<std::string> metrics;

 protected:
  absl::Status WriteMetric(const Json& record) override {
    const auto& fields = std::get<Json::Object>(record.value());
    CHECK(PythonRepr(fields[2].second) == "None");  // unit
    metrics.push_back(std::get<std::string>(fields[0].second.value()) + "=" + PythonRepr(fields[1].second) + "@" +
                      PythonRepr(fields[3].second));
    return absl::OkStatus();
  }
};

// A training loop with a clock of its own, around one hook.
class Loop {
 public:
  explicit Loop(Hook& hook, int64_t global_step = 0) : hook_(hook) { last_.global_step = global_step; }

  std::vector<std::string> tensor_names = {"cross_entropy", "learning_rate", "train_accuracy"};
  std::vector<std::pair<std::string, double>> tensors = {
      {"learning_rate", 1e-4f}, {"cross_entropy", 2.3025851f}, {"train_accuracy", 0.125f}};

  absl::Status Begin() {
    return hook_.Begin({.global_step = last_.global_step, .tensor_names = tensor_names, .time = now_});
  }

  // One step that takes `duration`. What the hook asked for.
  StepRequest Step(milliseconds duration = milliseconds(100)) {
    const StepRequest request = hook_.BeforeStep(last_.global_step + 1, now_);
    now_ += duration;
    last_ = {.global_step = last_.global_step + 1, .time = now_};
    if (request.tensors) last_.tensors = tensors;
    if (request.trace) last_.trace = trace_;
    CHECK(hook_.AfterStep(last_).ok());
    return request;
  }

  absl::Status End() { return hook_.End(last_); }
  void Evaluate(milliseconds duration) { now_ += duration; }

 private:
  Hook& hook_;
  TimePoint now_;
  StepInfo last_;
  const std::vector<DeviceTrace> trace_ = {{.device = "/device:CPU:0"}};
};

std::string MessageOf(const absl::Status& status) {
  CHECK(absl::IsInvalidArgument(status));
  return std::string(status.message());
}

// ------------------------------------------------------------------------------------------------- GetTrainHooks

TEST_CASE("GetTrainHooks makes the hook of each name") {
  RecordingLogger logger;
  const TrainHookOptions options = {.model_dir = "/tmp", .batch_size = 32, .logger = &logger};
  const auto only = [&](const std::string& name) {
    auto hooks = GetTrainHooks({name}, options).value();
    REQUIRE(hooks.size() == 1);
    return std::move(hooks[0]);
  };
  CHECK(dynamic_cast<ProfilerHook*>(only(" profilerhook ").get()) != nullptr);
  CHECK(dynamic_cast<ExamplesPerSecondHook*>(only("EXAMPLESPERSECONDHOOK").get()) != nullptr);
  CHECK(dynamic_cast<LoggingMetricHook*>(only("LoggingMetricHook").get()) != nullptr);
  CHECK(GetTrainHooks({}, options).value().empty());
  CHECK(GetTrainHooks({"ProfilerHook", "LoggingMetricHook"}, options).value().size() == 2);
}

TEST_CASE("LoggingTensorHook names the tensors of the log's lines") {
  CHECK(GetTrainHooks({"LoggingTensorHook"}, {}).value().empty());
  const std::vector<std::string> tensors = {"train_accuracy", "cross_entropy"};
  CHECK(TensorsInLog({"ProfilerHook", " loggingTENSORhook"}, tensors) ==
        std::vector<std::string>{"cross_entropy", "train_accuracy"});
  CHECK(TensorsInLog({"ProfilerHook"}, tensors).empty());
}

TEST_CASE("GetTrainHooks refuses other names, and says which there are") {
  const std::string message = MessageOf(GetTrainHooks({"StepCounterHook", "StopAtStepHook"}, {}).status());
  CHECK_THAT(message, Contains("'StepCounterHook'"));
  for (const char* name : {"LoggingTensorHook", "ProfilerHook", "ExamplesPerSecondHook", "LoggingMetricHook"}) {
    CHECK_THAT(message, Contains(name));
  }
}

TEST_CASE("GetTrainHooks logs the tensors in alphabetical order, metrics every 600 s") {
  RecordingLogger logger;
  auto hooks =
      GetTrainHooks({"LoggingMetricHook"}, {.logger = &logger, .tensors_to_log = {"learning_rate", "cross_entropy"}});
  Loop loop(*hooks.value()[0]);
  REQUIRE(loop.Begin().ok());
  loop.Step();
  const std::vector<std::string> once = {"cross_entropy=2.3025851249694824@1", "learning_rate=9.999999747378752e-05@1"};
  CHECK(logger.metrics == once);
  for (int step = 0; step < 599; ++step) loop.Step(milliseconds(1000));
  CHECK(logger.metrics == once);
  loop.Step(milliseconds(1000));  // its time is up only when it is done
  CHECK(logger.metrics == once);
  loop.Step(milliseconds(1000));
  CHECK(logger.metrics.size() == 4);
}

// ----------------------------------------------------------------------------------------------------- periods

TEST_CASE("Exactly one period must be given, and be positive") {
  BaseBenchmarkLogger logger;
  const Period both = {.steps = 10, .seconds = Seconds(20)};
  const Period neither;
  CHECK_THAT(MessageOf(ExamplesPerSecondHook::Create(32, &logger, both).status()), Contains("exactly one"));
  CHECK_THAT(MessageOf(ExamplesPerSecondHook::Create(32, &logger, neither).status()), Contains("exactly one"));
  CHECK_THAT(MessageOf(LoggingMetricHook::Create({"t"}, &logger, both).status()), Contains("exactly one"));
  CHECK_THAT(MessageOf(LoggingMetricHook::Create({"t"}, &logger, neither).status()), Contains("exactly one"));
  CHECK_THAT(MessageOf(LoggingMetricHook::Create({"t"}, &logger, both, /*at_end=*/true).status()),
             Contains("exactly one"));
  CHECK_THAT(MessageOf(LoggingMetricHook::Create({"t"}, &logger, {.steps = 0}).status()), Contains("not positive"));
  CHECK_THAT(MessageOf(LoggingMetricHook::Create({"t"}, &logger, {.steps = -10}).status()), Contains("not positive"));
  CHECK_THAT(MessageOf(LoggingMetricHook::Create({"t"}, &logger, {.seconds = Seconds(-1)}).status()),
             Contains("not positive"));
}

TEST_CASE("Hooks that log metrics need a logger") {
  CHECK_THAT(MessageOf(LoggingMetricHook::Create({"t"}, nullptr, {.steps = 10}).status()), Contains("logger"));
  CHECK_THAT(MessageOf(ExamplesPerSecondHook::Create(32, nullptr).status()), Contains("logger"));
}

TEST_CASE("The timer triggers at once, never twice for a step, then when steps or seconds have passed") {
  const TimePoint start;
  SecondOrStepTimer steps({.steps = 10});
  CHECK(steps.ShouldTrigger(5, start));
  CHECK_FALSE(steps.Update(5, start).has_value());
  CHECK_FALSE(steps.ShouldTrigger(14, start));
  CHECK(steps.ShouldTrigger(15, start));

  SecondOrStepTimer seconds({.seconds = Seconds(2)});
  seconds.Update(5, start);
  CHECK_FALSE(seconds.ShouldTrigger(5, start + milliseconds(9000)));
  CHECK_FALSE(seconds.ShouldTrigger(6, start + milliseconds(1999)));
  CHECK(seconds.ShouldTrigger(6, start + milliseconds(2000)));
  const auto elapsed = seconds.Update(8, start + milliseconds(2500));
  CHECK(elapsed->steps == 3);
  CHECK(elapsed->time == milliseconds(2500));
  seconds.Reset();
  CHECK(seconds.ShouldTrigger(8, start + milliseconds(2500)));
}

// ------------------------------------------------------------------------------------------ ExamplesPerSecondHook

TEST_CASE("ExamplesPerSecondHook: batch 128, every 100 steps after 5 warm ones, logs at 106, 206, 306") {
  RecordingLogger logger;
  auto hooks = GetTrainHooks({"ExamplesPerSecondHook"}, {.batch_size = 128, .logger = &logger});
  Loop loop(*hooks.value()[0]);
  REQUIRE(loop.Begin().ok());
  for (int step = 1; step <= 320; ++step) loop.Step(milliseconds(step <= 206 ? 100 : 50));
  // 128 examples in 0.1 s, then in 0.05 s; over all 300 steps in 25 s.
  CHECK(logger.metrics ==
        std::vector<std::string>{"average_examples_per_sec=1280.0@106", "current_examples_per_sec=1280.0@106",
                                 "average_examples_per_sec=1280.0@206", "current_examples_per_sec=1280.0@206",
                                 "average_examples_per_sec=1536.0@306", "current_examples_per_sec=2560.0@306"});
}

TEST_CASE("ExamplesPerSecondHook without warm steps: nothing in the first period, then two metrics") {
  const int every = GENERATE(1, 5);
  RecordingLogger logger;
  auto hook = ExamplesPerSecondHook::Create(256, &logger, {.steps = every}, /*warm_steps=*/0).value();
  Loop loop(*hook);
  REQUIRE(loop.Begin().ok());
  for (int step = 0; step < every; ++step) loop.Step();
  CHECK(logger.metrics.empty());
  loop.Step();
  REQUIRE(logger.metrics.size() == 2);
  CHECK_THAT(logger.metrics[0], Contains("average_examples_per_sec"));
  CHECK_THAT(logger.metrics[1], Contains("current_examples_per_sec"));
  loop.Step();
  CHECK(logger.metrics.size() == (every == 1 ? 4 : 2));
}

TEST_CASE("ExamplesPerSecondHook: nothing while warming up") {
  const int every = GENERATE(1, 5);
  RecordingLogger logger;
  auto hook = ExamplesPerSecondHook::Create(256, &logger, {.steps = every}, /*warm_steps=*/10).value();
  Loop loop(*hook);
  REQUIRE(loop.Begin().ok());
  for (int step = 0; step < 10; ++step) loop.Step();
  CHECK(logger.metrics.empty());
}

TEST_CASE("ExamplesPerSecondHook: every so many seconds") {
  RecordingLogger logger;
  auto hook = ExamplesPerSecondHook::Create(256, &logger, {.seconds = Seconds(0.2)}, /*warm_steps=*/0).value();
  Loop loop(*hook);
  REQUIRE(loop.Begin().ok());
  loop.Step(milliseconds(200));
  CHECK(logger.metrics.empty());
  loop.Step(milliseconds(100));
  CHECK(logger.metrics.empty());
  loop.Step(milliseconds(156));
  CHECK(logger.metrics ==
        std::vector<std::string>{"average_examples_per_sec=2000.0@3", "current_examples_per_sec=2000.0@3"});
}

TEST_CASE("ExamplesPerSecondHook leaves out the time between train calls") {
  RecordingLogger logger;
  auto hook = ExamplesPerSecondHook::Create(10, &logger, {.steps = 4}, /*warm_steps=*/0).value();
  Loop loop(*hook);
  for (int call = 0; call < 2; ++call) {
    REQUIRE(loop.Begin().ok());
    for (int step = 0; step < 3; ++step) loop.Step(milliseconds(100));
    REQUIRE(loop.End().ok());
    loop.Evaluate(milliseconds(60000));
  }
  CHECK(logger.metrics ==
        std::vector<std::string>{"average_examples_per_sec=100.0@5", "current_examples_per_sec=100.0@5"});
}

// ---------------------------------------------------------------------------------------------- LoggingMetricHook

TEST_CASE("LoggingMetricHook: only at the end") {
  RecordingLogger logger;
  auto hook = LoggingMetricHook::Create({"t"}, &logger, {}, /*at_end=*/true).value();
  Loop loop(*hook, /*global_step=*/-1);  // so that the only step leaves 0, as in the upstream test
  loop.tensor_names = {"t"};
  loop.tensors = {{"t", 42.0}};
  REQUIRE(loop.Begin().ok());
  CHECK(loop.Step().tensors);
  CHECK(logger.metrics.empty());
  REQUIRE(loop.End().ok());
  CHECK(logger.metrics == std::vector<std::string>{"t=42.0@0"});
}

TEST_CASE("LoggingMetricHook: tensors in the order given") {
  RecordingLogger logger;
  auto hook = LoggingMetricHook::Create({"u", "t"}, &logger, {.steps = 10}).value();
  Loop loop(*hook);
  loop.tensor_names = {"t", "u"};
  loop.tensors = {{"t", 43.0}, {"u", 42.0}};
  REQUIRE(loop.Begin().ok());
  loop.Step();
  CHECK(logger.metrics == std::vector<std::string>{"u=42.0@1", "t=43.0@1"});
}

TEST_CASE("LoggingMetricHook: every 10 iterations, and at the end if asked") {
  const bool at_end = GENERATE(false, true);
  RecordingLogger logger;
  auto hook = LoggingMetricHook::Create({"t"}, &logger, {.steps = 10}, at_end).value();
  Loop loop(*hook, /*global_step=*/1000);
  loop.tensor_names = {"t"};
  loop.tensors = {{"t", 42.0}};
  REQUIRE(loop.Begin().ok());
  for (int iteration = 0; iteration < 35; ++iteration) CHECK(loop.Step().tensors == (at_end || iteration % 10 == 0));
  std::vector<std::string> expected = {"t=42.0@1001", "t=42.0@1011", "t=42.0@1021", "t=42.0@1031"};
  CHECK(logger.metrics == expected);
  REQUIRE(loop.End().ok());
  if (at_end) expected.push_back("t=42.0@1035");
  CHECK(logger.metrics == expected);
}

TEST_CASE("LoggingMetricHook: every second, the first step at once") {
  RecordingLogger logger;
  auto hook = LoggingMetricHook::Create({"t"}, &logger, {.seconds = Seconds(1)}).value();
  Loop loop(*hook);
  loop.tensor_names = {"t"};
  loop.tensors = {{"t", 42.0}};
  REQUIRE(loop.Begin().ok());
  CHECK(loop.Step().tensors);
  for (int step = 0; step < 4; ++step) CHECK_FALSE(loop.Step(milliseconds(250)).tensors);
  CHECK(loop.Step().tensors);
  REQUIRE(loop.End().ok());
  CHECK(logger.metrics == std::vector<std::string>{"t=42.0@1", "t=42.0@6"});
}

TEST_CASE("LoggingMetricHook: a train call without steps has no last values") {
  RecordingLogger logger;
  auto hook = LoggingMetricHook::Create({"t"}, &logger, {}, /*at_end=*/true).value();
  Loop loop(*hook);
  loop.tensor_names = {"t"};
  REQUIRE(loop.Begin().ok());
  CHECK(loop.End().ok());
  CHECK(logger.metrics.empty());
}

// --------------------------------------------------------------------------------------------------- ProfilerHook

TEST_CASE("ProfilerHook: timeline-<step after the update>.json at the first step, then every 1000") {
  CapturedLog log(LogFormat::kSimple);
  const std::string directory = std::string(std::getenv("TEST_TMPDIR")) + "/profiler";
  std::filesystem::create_directory(directory);
  auto hooks = GetTrainHooks({"ProfilerHook"}, {.model_dir = directory});
  Loop loop(*hooks.value()[0]);
  REQUIRE(loop.Begin().ok());
  for (int step = 0; step < 1001; ++step) {
    const StepRequest request = loop.Step();
    CHECK(request.trace == (step % 1000 == 0));
    CHECK(request.event_trace == request.trace);
  }
  REQUIRE(loop.End().ok());
  REQUIRE(loop.Begin().ok());
  CHECK(loop.Step().trace);
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) files.push_back(entry.path().filename());
  std::sort(files.begin(), files.end());
  CHECK(files == std::vector<std::string>{"timeline-1.json", "timeline-1001.json", "timeline-1002.json"});
  CHECK_THAT(log.Text(), Contains("Saving timeline for 1 into '" + directory + "/timeline-1.json'."));
}

TEST_CASE("ProfilerHook: a timeline that cannot be written ends the training") {
  ProfilerHook hook("/no/such/dir", 1000);
  REQUIRE(hook.BeforeStep(1, TimePoint()).trace);
  CHECK(absl::IsFailedPrecondition(hook.AfterStep({.global_step = 1})));
}

}  // namespace
}  // namespace official::logs
