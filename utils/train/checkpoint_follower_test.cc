#include "utils/train/checkpoint_follower.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "utils/files/files.h"
#include "utils/logs/captured_log.h"
#include "utils/train/line_model.h"
#include "utils/train/rounds.h"

namespace official::train {
namespace {

using Catch::Matchers::Contains;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kNone(0), kNever = std::chrono::hours(1);

// Trains to a step and saves it, as another process does.
absl::Status TrainTo(const EstimatorConfig& config, int64_t step) {
  return MakeEstimator(config)->Train(Input(1), step, {});
}

EstimatorConfig EvaluatorOf(EstimatorConfig config) {
  config.use = ModelDir::Use::kEvaluate;
  config.resume = Resume::kMust;
  return config;
}

// Evaluates and records what the follower says is due; returns the steps.
std::vector<int64_t> Follow(CheckpointFollower& follower, Estimator& estimator, int64_t last_step) {
  std::vector<int64_t> steps;
  while (estimator.global_step() < last_step || !IsEvaluated(estimator.state())) {
    REQUIRE(
        follower.WaitForNext(estimator, [&](const RunState& state) { return state.global_step >= last_step; }).ok());
    steps.push_back(estimator.global_step());
    REQUIRE(estimator.Evaluate(Input(1), 1).ok());
    REQUIRE(estimator.KeepEvaluatedStep().ok());
  }
  return steps;
}

// Counts the looks of a follower at the directory, after each of which it asks for an interruption.
class Looks {
 public:
  std::function<Interruption()> Count() {
    return [this] {
      ++count_;
      return Interruption::kNone;
    };
  }
  // Waits, a minute at most, until the follower has looked several times more: it has done with what is there.
  void WaitForMore() const {
    constexpr int kSeveral = 5;
    const int enough = count_ + kSeveral;
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (count_ < enough && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(milliseconds(10));
  }

 private:
  std::atomic<int> count_ = 0;
};

float Weight(const Estimator& estimator) { return estimator.Variable("w").value().data<float>()[0]; }

TEST_CASE("Each checkpoint is evaluated once, with its own variables, and none by another that comes later") {
  const EstimatorConfig config = Config();
  Looks looks;
  CheckpointFollower follower(config.model_dir,
                              {.start_delay = kNone, .throttle = kNone, .interruption = looks.Count()});
  absl::Status trained_to;
  std::thread training([&] {
    for (const int64_t step : {2, 4, 6}) {
      looks.WaitForMore();
      trained_to.Update(TrainTo(config, step));
    }
  });
  REQUIRE(follower.WaitForFirst().ok());
  const auto evaluator = MakeEstimator(EvaluatorOf(config));
  // The first training saves step 0, too.
  std::vector<int64_t> steps = Follow(follower, *evaluator, 6);
  training.join();
  REQUIRE(trained_to.ok());
  if (steps.front() == 0) steps.erase(steps.begin());
  CHECK(steps == std::vector<int64_t>{2, 4, 6});
  const auto trained = MakeEstimator(config);
  REQUIRE(trained->Evaluate(Input(1), 1).ok());  // which makes the variables
  CHECK(Weight(*evaluator) == Weight(*trained));

  CheckpointFollower later(config.model_dir, {.start_delay = kNone, .throttle = kNone, .timeout = seconds(1)});
  const auto second = MakeEstimator(EvaluatorOf(config));
  const absl::Status nothing = later.WaitForNext(*second, [](const RunState&) { return true; });
  CHECK(absl::IsUnavailable(nothing));
  CHECK_THAT(std::string(nothing.message()),
             Contains("has had no new checkpoint for 1 s, in which a checkpoint after step 6 was waited for"));
}

TEST_CASE("A checkpoint that takes the place of another of its step may be the last one") {
  const EstimatorConfig config = Config();
  REQUIRE(TrainTo(config, 2).ok());
  CheckpointFollower follower(config.model_dir, {.start_delay = kNone, .throttle = kNone, .timeout = seconds(5)});
  const auto evaluator = MakeEstimator(EvaluatorOf(config));
  const auto first = [](const RunState& state) { return state.global_step == 2; };
  REQUIRE(follower.WaitForNext(*evaluator, first).ok());
  REQUIRE(evaluator->Evaluate(Input(1), 1).ok());
  REQUIRE(evaluator->KeepEvaluatedStep().ok());
  // As the chief of a job saves again when another worker has gone on without a step.
  for (const char* const suffix : {".data-00000-of-00001", ".index"}) {
    const std::string path = config.model_dir + "/model.ckpt-2" + suffix;
    REQUIRE(files::WriteFileAtomically(path, files::ReadFile(path, 1 << 20).value()).ok());
  }
  CHECK(follower.WaitForNext(*evaluator, first).ok());
  CHECK(IsEvaluated(evaluator->state()));
}

TEST_CASE("Only the latest checkpoint is evaluated") {
  EstimatorConfig config = Config();
  config.save_checkpoints_steps = 2;
  REQUIRE(TrainTo(config, 8).ok());
  CheckpointFollower follower(config.model_dir, {.start_delay = kNone, .throttle = kNone});
  const auto evaluator = MakeEstimator(EvaluatorOf(config));
  CHECK(Follow(follower, *evaluator, 8) == std::vector<int64_t>{8});
}

TEST_CASE("Evaluations are throttled, but for the last one") {
  const EstimatorConfig config = Config();
  REQUIRE(TrainTo(config, 2).ok());
  Looks looks;
  CheckpointFollower follower(config.model_dir,
                              {.start_delay = kNone, .throttle = kNever, .interruption = looks.Count()});
  const auto evaluator = MakeEstimator(EvaluatorOf(config));
  const auto never = [](const RunState&) { return false; };
  REQUIRE(follower.WaitForNext(*evaluator, never).ok());
  CHECK(evaluator->global_step() == 2);
  REQUIRE(evaluator->Evaluate(Input(1), 1).ok());
  REQUIRE(evaluator->KeepEvaluatedStep().ok());
  REQUIRE(TrainTo(config, 4).ok());
  absl::Status trained_to;
  std::thread training([&] {
    looks.WaitForMore();
    trained_to = TrainTo(config, 6);
  });
  CHECK(Follow(follower, *evaluator, 6) == std::vector<int64_t>{6});
  training.join();
  REQUIRE(trained_to.ok());
}

TEST_CASE("The first evaluation waits for its delay, unless the training is over") {
  const EstimatorConfig config = Config();
  REQUIRE(TrainTo(config, 2).ok());
  const auto begin = std::chrono::steady_clock::now();
  CheckpointFollower follower(config.model_dir, {.start_delay = seconds(1), .throttle = kNone});
  const auto evaluator = MakeEstimator(EvaluatorOf(config));
  REQUIRE(follower.WaitForNext(*evaluator, [](const RunState&) { return false; }).ok());
  CHECK(std::chrono::steady_clock::now() - begin >= seconds(1));
  CheckpointFollower late(config.model_dir, {.start_delay = kNever, .throttle = kNone});
  CHECK(late.WaitForNext(*evaluator, [](const RunState&) { return true; }).ok());
}

TEST_CASE("A wait for the first checkpoint ends when a stop is wanted, or after its time") {
  const std::string missing = Config().model_dir;
  std::atomic<int> asked = 0;
  CheckpointFollower stopped(
      missing, {.interruption = [&] { return ++asked == 3 ? Interruption::kStop : Interruption::kNone; }});
  const absl::Status stop = stopped.WaitForFirst();
  CHECK(absl::IsCancelled(stop));
  CHECK_THAT(std::string(stop.message()), Contains("stopped while it waited for the first checkpoint"));
  CheckpointFollower late(missing, {.timeout = seconds(1)});
  CHECK_THAT(std::string(late.WaitForFirst().message()),
             Contains("--model_dir=" + missing + " has had no new checkpoint for 1 s"));
  CHECK(!files::Exists(missing));
}

TEST_CASE("Who waits long for a checkpoint is told so again and again") {
  const std::string missing = Config().model_dir;
  logs::CapturedLog log(logs::LogFormat::kSimple);
  std::string text;
  const auto until_told_twice = [&] {
    text = log.Text();
    return text.find("has waited 2 s") == std::string::npos ? Interruption::kNone : Interruption::kStop;
  };
  CheckpointFollower follower(missing, {.warn_every = seconds(1), .interruption = until_told_twice});
  CHECK(absl::IsCancelled(follower.WaitForFirst()));
  for (const char* waited : {"1", "2"}) {
    CHECK_THAT(text, Contains(absl::StrCat("has waited ", waited, " s for the first checkpoint in ", missing,
                                           "; is the chief training there?")));
  }
}

TEST_CASE("A checkpoint that the training removes for a newer one is no error, one that is damaged is") {
  EstimatorConfig config = Config();
  config.keep_checkpoint_max = 1;
  REQUIRE(TrainTo(config, 2).ok());
  CheckpointFollower follower(config.model_dir, {.start_delay = kNone, .throttle = kNone});
  const auto evaluator = MakeEstimator(EvaluatorOf(config));
  absl::Status trained_to;
  std::thread training([&] {
    for (int64_t step = 3; step <= 20; ++step) trained_to.Update(TrainTo(config, step));
  });
  const std::vector<int64_t> steps = Follow(follower, *evaluator, 20);
  training.join();
  REQUIRE(trained_to.ok());
  CHECK(steps.back() == 20);

  REQUIRE(TrainTo(config, 22).ok());
  const std::string data = config.model_dir + "/model.ckpt-22.data-00000-of-00001";
  REQUIRE(files::WriteFileAtomically(data, "damaged").ok());
  CHECK(absl::IsDataLoss(follower.WaitForNext(*evaluator, [](const RunState&) { return true; })));
}

}  // namespace
}  // namespace official::train
