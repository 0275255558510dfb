#include "utils/logs/progress.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "utils/logs/captured_log.h"

namespace official::logs {
namespace {

using Catch::Matchers::Contains;
using Catch::Matchers::EndsWith;
using std::chrono::milliseconds;

// A training loop with a clock of its own: steps of 100 examples.
class Loop {
 public:
  explicit Loop(Progress& progress) : progress_(progress) {}

  absl::Status TryBegin() {
    return progress_.Begin({.global_step = last_.global_step, .tensor_names = kTensorNames, .time = now_});
  }
  void Begin() { CHECK(TryBegin().ok()); }

  // One step that takes `duration`, of which it waits `data_wait` for its batch. Whether its loss was asked for.
  bool Step(milliseconds duration, double loss = 0.5, milliseconds data_wait = {}) {
    const StepRequest request = progress_.BeforeStep(last_.global_step + 1, now_);
    now_ += duration;
    loss_ = loss;
    last_ = {.global_step = last_.global_step + 1,
             .epoch = 2,
             .examples = 100,
             .data_wait = data_wait,
             .time = now_,
             .loss = request.loss ? std::optional(loss) : std::nullopt};
    if (request.tensors) last_.tensors = tensors_;
    CHECK(progress_.AfterStep(last_).ok());
    return request.loss;
  }
  // A part of the next step goes by.
  void Wait(milliseconds time) {
    now_ += time;
    progress_.Tick();
  }
  TimePoint now() const { return now_; }

  // The training fetches the loss of the last step, whoever asked for it.
  void End() {
    if (last_.examples > 0) last_.loss = loss_;
    CHECK(progress_.End(last_).ok());
  }
  // The same where the last step's loss cannot be had.
  void EndWithoutLoss() {
    last_.loss.reset();
    CHECK(progress_.End(last_).ok());
  }
  void Evaluate(milliseconds duration) { now_ += duration; }

 private:
  static inline const std::vector<std::string> kTensorNames = {"learning_rate", "cross_entropy", "train_accuracy"};

  Progress& progress_;
  TimePoint now_;
  StepInfo last_;
  double loss_ = 0;
  const std::vector<std::pair<std::string, double>> tensors_ = {
      {"learning_rate", 1e-4f}, {"cross_entropy", 0.5}, {"train_accuracy", 0.125}};
};

// The log's lines without level and time.
std::string Messages(const std::string& log) {
  std::string messages;
  for (size_t at = 0; at < log.size();) {
    const size_t end = log.find('\n', at);
    messages += log.substr(at + 15, end - at - 14);
    at = end + 1;
  }
  return messages;
}

TEST_CASE("Throughput is examples over wall time after the warm-up") {
  CapturedLog log(LogFormat::kNone);
  Progress progress({.format = LogFormat::kNone, .warmup_steps = 2});
  Loop loop(progress);
  loop.Begin();
  loop.Step(milliseconds(5000));
  loop.Step(milliseconds(1000));
  CHECK_FALSE(progress.ExamplesPerSecond().has_value());
  CHECK(progress.Summary() == "no throughput: 2 steps are not more than the 2 warm-up steps");
  loop.Step(milliseconds(100));
  loop.Step(milliseconds(300));
  // 200 examples in 0.4 s. The mean of the rates of the two steps, 667, would be wrong.
  CHECK(*progress.ExamplesPerSecond() == Approx(500));
  CHECK(progress.Summary() == "500.0 examples/s (after 2 warm-up steps)");
}

TEST_CASE("Evaluations between train calls are not part of the throughput, and there is one warm-up") {
  CapturedLog log(LogFormat::kNone);
  Progress progress({.format = LogFormat::kNone, .warmup_steps = 1});
  Loop loop(progress);
  for (int call = 0; call < 2; ++call) {
    loop.Begin();
    loop.Step(milliseconds(200));
    loop.Step(milliseconds(200));
    loop.End();
    loop.Evaluate(milliseconds(60000));
  }
  CHECK(*progress.ExamplesPerSecond() == Approx(500));
}

TEST_CASE("simple: a line at the first step, at every multiple of log_every_n_steps, and at the end") {
  CapturedLog log(LogFormat::kSimple);
  Progress progress({.total_steps = 7, .total_epochs = 3, .log_every_n_steps = 2, .warmup_steps = 3});
  Loop loop(progress);
  loop.Begin();
  for (int step = 1; step <= 5; ++step) {
    CHECK(loop.Step(milliseconds(100), /*loss=*/2.0 / step, /*data_wait=*/milliseconds(5)) ==
          (step == 1 || step % 2 == 0));
  }
  loop.End();
  CHECK(Messages(log.Text()) ==
        "loss = 2.0, step = 1, 14% of 7 steps, epoch 2/3, warm-up\n"
        "loss = 1.0, step = 2 (0.100 sec), 28% of 7 steps, epoch 2/3, warm-up\n"
        "loss = 0.5, step = 4 (0.200 sec), 57% of 7 steps, epoch 2/3, 1000.0 examples/s, ETA 0:01, data-wait 5.0%\n"
        "Loss for final step: 0.4. step = 5, 71% of 7 steps, epoch 2/3, 1000.0 examples/s, ETA 0:01, "
        "data-wait 5.0%\n");
}

TEST_CASE("A step waits for its batch for no longer than it takes, though its round began later than the wait") {
  CapturedLog log(LogFormat::kSimple);
  Progress progress({.total_steps = 2, .log_every_n_steps = 1, .warmup_steps = 0});
  Loop loop(progress);
  loop.Begin();
  loop.Step(milliseconds(100), /*loss=*/1, /*data_wait=*/milliseconds(500));
  loop.Step(milliseconds(100), /*loss=*/1, /*data_wait=*/milliseconds(0));
  loop.End();
  CHECK_THAT(Messages(log.Text()), Contains("data-wait 100.0%") && Contains("data-wait 50.0%"));
}

TEST_CASE("simple: the last step has one line, with its loss") {
  CapturedLog log(LogFormat::kSimple);
  Progress progress({.total_steps = 3, .log_every_n_steps = 100, .warmup_steps = 0});
  Loop loop(progress);
  loop.Begin();
  for (int step = 1; step <= 3; ++step) CHECK(loop.Step(milliseconds(50), 0.25) == (step != 2));
  loop.End();
  CHECK(Messages(log.Text()) ==
        "loss = 0.25, step = 1, 33% of 3 steps, epoch 2, 2000.0 examples/s, ETA 0:01, data-wait 0.0%\n"
        "Loss for final step: 0.25. step = 3, 100% of 3 steps, epoch 2, 2000.0 examples/s, ETA 0:00, "
        "data-wait 0.0%\n");
}

TEST_CASE("simple: a train call that ends with a step that has its line adds the loss for the final step") {
  CapturedLog log(LogFormat::kSimple);
  Progress progress({.log_every_n_steps = 2, .warmup_steps = 5});
  Loop loop(progress);
  for (int call = 0; call < 2; ++call) {
    loop.Begin();
    loop.Step(milliseconds(50), 2.302585092994046);
    loop.Step(milliseconds(50), 0.75);
    loop.End();
    loop.Evaluate(milliseconds(60000));
  }
  // The time of an evaluation is in no line, and a loss has the digits of a float, as in TensorFlow's log.
  CHECK(Messages(log.Text()) ==
        "loss = 2.3025851, step = 1, epoch 2, warm-up\n"
        "loss = 0.75, step = 2 (0.050 sec), epoch 2, warm-up\n"
        "Loss for final step: 0.75.\n"
        "loss = 0.75, step = 4, epoch 2, warm-up\n"
        "Loss for final step: 0.75.\n");
}

TEST_CASE("simple: a train call that was stopped in the middle of a step ends without a loss") {
  CapturedLog log(LogFormat::kSimple);
  Progress progress({.warmup_steps = 5});
  Loop loop(progress);
  loop.Begin();
  loop.Step(milliseconds(50));
  loop.Step(milliseconds(50));
  loop.EndWithoutLoss();
  CHECK_THAT(Messages(log.Text()), EndsWith("warm-up\nstep = 2, epoch 2, warm-up\n"));
}

TEST_CASE("simple: the tensors stand in the same line, without one that is the loss itself") {
  CapturedLog log(LogFormat::kSimple);
  Progress progress(
      {.log_every_n_steps = 2, .warmup_steps = 5, .tensors = {"cross_entropy", "learning_rate", "train_accuracy"}});
  Loop loop(progress);
  loop.Begin();
  loop.Step(milliseconds(50), 0.75);
  loop.Step(milliseconds(50), 0.5);
  CHECK(Messages(log.Text()) ==
        "loss = 0.75, step = 1, cross_entropy = 0.5, learning_rate = 1e-04, train_accuracy = 0.125, epoch 2, warm-up\n"
        "loss = 0.5, step = 2 (0.050 sec), learning_rate = 1e-04, train_accuracy = 0.125, epoch 2, warm-up\n");
}

TEST_CASE("A tensor that the model does not have is refused at the start") {
  CapturedLog log(LogFormat::kSimple);
  Progress progress({.tensors = {"cross_entropy", "perplexity"}});
  const absl::Status status = Loop(progress).TryBegin();
  CHECK(absl::IsInvalidArgument(status));
  CHECK_THAT(std::string(status.message()), Contains("'perplexity'") &&
                                                Contains("[learning_rate, cross_entropy, train_accuracy]") &&
                                                Contains("--hooks"));
}

TEST_CASE("simple: no half minute without a line, in long steps and between short ones") {
  CapturedLog log(LogFormat::kSimple);
  TimePoint now;
  Progress progress({.log_every_n_steps = 100, .warmup_steps = 10, .now = [&] { return now; }});
  Loop loop(progress);
  const auto wait = [&](milliseconds time) {
    now = loop.now() + time;
    loop.Wait(time);
  };
  loop.Begin();
  loop.Step(milliseconds(1000));
  CHECK(Messages(log.Text()) == "loss = 0.5, step = 1, epoch 2, warm-up\n");
  for (int step = 2; step <= 27; ++step) loop.Step(milliseconds(1000));
  // The step that began 25 s after the last line has one.
  CHECK_THAT(Messages(log.Text()),
             Contains("warm-up\nloss = 0.5, step = 27 (26.000 sec), ") && EndsWith("data-wait 0.0%\n"));
  for (int second = 0; second < 61; ++second) wait(milliseconds(1000));
  CHECK_THAT(Messages(log.Text()), EndsWith("data-wait 0.0%\nstep 28 has taken 30 s so far\n"
                                            "step 28 has taken 60 s so far\n"));
}

TEST_CASE("The time left is that of the steps left, in hours if need be") {
  CapturedLog log(LogFormat::kSimple);
  Progress progress({.total_steps = 3661, .log_every_n_steps = 1, .warmup_steps = 0});
  Loop loop(progress);
  loop.Begin();
  loop.Step(milliseconds(1000));
  CHECK_THAT(log.Text(), Contains("ETA 1:01:00,"));
}

TEST_CASE("A time left that no int64 holds is 2^62 s") {
  CapturedLog log(LogFormat::kSimple);
  Progress progress({.total_steps = std::numeric_limits<int64_t>::max(), .log_every_n_steps = 1, .warmup_steps = 0});
  Loop loop(progress);
  loop.Begin();
  loop.Step(milliseconds(2000));
  CHECK_THAT(log.Text(), Contains("ETA 1281023894007607:45:04,"));
}

TEST_CASE("No total, no time left") {
  CapturedLog log(LogFormat::kSimple);
  Progress progress({.log_every_n_steps = 1, .warmup_steps = 0});
  Loop loop(progress);
  loop.Begin();
  loop.Step(milliseconds(1000));
  CHECK(Messages(log.Text()) == "loss = 0.5, step = 1, epoch 2, 100.0 examples/s, data-wait 0.0%\n");
}

TEST_CASE("A train call without steps logs nothing") {
  CapturedLog log(LogFormat::kSimple);
  Progress progress({.total_steps = 3});
  Loop loop(progress);
  loop.Begin();
  loop.End();
  CHECK(log.Text().empty());
}

TEST_CASE("bar: drawn at most ten times a second, its loss fetched only then") {
  CapturedLog log(LogFormat::kBar);
  Progress progress({.format = LogFormat::kBar, .total_steps = 1000, .total_epochs = 4, .warmup_steps = 0});
  Loop loop(progress);
  loop.Begin();
  int drawn = 0;
  for (int step = 0; step < 100; ++step) drawn += loop.Step(milliseconds(10));
  CHECK(drawn == 10);
  CHECK_THAT(log.Text(), Contains("\r\x1b[Kstep 11/1000   1% [>       ] loss 0.5, 10000.0 examples/s, ETA 0:10, "
                                  "epoch 2/4\r"));
}

TEST_CASE("bar: long steps are drawn each, with their loss") {
  CapturedLog log(LogFormat::kBar);
  Progress progress({.format = LogFormat::kBar, .warmup_steps = 0});
  Loop loop(progress);
  loop.Begin();
  for (int step = 0; step < 5; ++step) CHECK(loop.Step(milliseconds(4000)));
}

TEST_CASE("bar: the clock of a long step moves, the time left goes down") {
  CapturedLog log(LogFormat::kBar);
  TimePoint now;
  Progress progress({.format = LogFormat::kBar, .total_steps = 10, .warmup_steps = 0, .now = [&] { return now; }});
  Loop loop(progress);
  const auto wait = [&](milliseconds time) {
    now = loop.now() + time;
    loop.Wait(time);
    const std::string text = log.Text();
    return text.substr(text.rfind("\x1b[K") + 3);
  };
  loop.Begin();
  now = loop.now() + milliseconds(900);
  loop.Wait(milliseconds(900));
  CHECK(log.Text().empty());
  loop.Step(milliseconds(59'100));
  CHECK(wait(milliseconds(2000)) == "step 1/10  10% [=>        ] loss 0.5, 1.7 examples/s, ETA 8:58, 0:02 in step 2");
  CHECK(wait(milliseconds(60'000)) == "step 1/10  10% [=>        ] loss 0.5, 1.7 examples/s, ETA 7:58, 1:02 in step 2");
}

TEST_CASE("bar: with tensors to tell, lines of the log stay above the live one") {
  CapturedLog log(LogFormat::kBar);
  Progress progress({.format = LogFormat::kBar, .log_every_n_steps = 2, .tensors = {"train_accuracy"}});
  Loop loop(progress);
  loop.Begin();
  for (int step = 1; step <= 4; ++step) loop.Step(milliseconds(10));
  const std::string text = log.Text();
  CHECK(std::count(text.begin(), text.end(), '\n') == 3);
  CHECK_THAT(text, Contains("loss = 0.5, step = 4 (0.020 sec), train_accuracy = 0.125, epoch 2, warm-up\n"));
}

TEST_CASE("bar: the end of a train call leaves a line of its own in place of the live one") {
  CapturedLog log(LogFormat::kBar);
  {
    Progress progress({.format = LogFormat::kBar, .total_steps = 1, .warmup_steps = 0});
    Loop loop(progress);
    loop.Begin();
    loop.Step(milliseconds(100));
    loop.End();
  }
  CHECK_THAT(log.Text(), Catch::Matchers::Matches(
                             "\r\x1b\\[Kstep 1/1 100% \\[=+\\] loss 0\\.5, 1000\\.0 examples/s, ETA 0:00, epoch 2"
                             "\r\x1b\\[K"
                             "I [^ ]* Loss for final step: 0\\.5\\. step = 1, 100% of 1 steps, epoch 2, "
                             "1000\\.0 examples/s, ETA 0:00, data-wait 0\\.0%\n"));
}

TEST_CASE("json: numbers in fields, null for what is not known or not finite") {
  CapturedLog log(LogFormat::kJson);
  Progress progress({.format = LogFormat::kJson, .total_steps = 12, .log_every_n_steps = 1, .warmup_steps = 1});
  Loop loop(progress);
  loop.Begin();
  loop.Step(milliseconds(100), std::nan(""));
  loop.Step(milliseconds(100), 0.25, milliseconds(25));
  CHECK_THAT(log.Text(),
             Contains(R"(, "epoch": 2, "total_epochs": null, "global_step": 1, "total_steps": 12, "loss": null, )"
                      R"("tensors": {}, "examples_per_sec": null, "warmup_steps": 1, "eta_sec": null, )"
                      R"("data_wait_fraction": null})"));
  CHECK_THAT(
      log.Text(),
      Contains(R"("global_step": 2, "total_steps": 12, "loss": 0.25, "tensors": {}, "examples_per_sec": 1000.0, )"
               R"("warmup_steps": 1, "eta_sec": 1.0, "data_wait_fraction": 0.25})"));
}

TEST_CASE("none: no loss is fetched") {
  CapturedLog log(LogFormat::kNone);
  Progress progress({.format = LogFormat::kNone, .total_steps = 2, .log_every_n_steps = 1});
  Loop loop(progress);
  loop.Begin();
  CHECK_FALSE(loop.Step(milliseconds(100)));
  CHECK_FALSE(loop.Step(milliseconds(100)));
  loop.End();
  CHECK(log.Text().empty());
}

}  // namespace
}  // namespace official::logs
