// What several workers promise: however they hold the replicas of a job, they end with the bits of one process that has
// all of them. The workers are threads here.

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/compute/graph/op_def.h"
#include "utils/compute/kernel/kernel.h"
#include "utils/compute/layers/layers.h"
#include "utils/compute/ops/array/array.h"
#include "utils/compute/ops/dropout/dropout.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/reduction/reduction.h"
#include "utils/distribute/memory_exchange.h"
#include "utils/distribute/worker_splits.h"
#include "utils/files/files.h"
#include "utils/logs/hook.h"
#include "utils/train/estimator.h"

namespace official::train {
namespace {

using Catch::Matchers::Contains;
using compute::DType;
using compute::Share;
using compute::Tensor;
using compute::Value;

// What a run is made with.
struct Case {
  bool synchronized = false;  // batch normalization
  int micro_batches = 1;
  DType dtype = DType::kFloat32;
  bool skips = false;     // a dynamic loss scale, and a batch whose gradients are not finite
  bool averages = false;  // of the variables; and gradients that are clipped by their norm
  bool timed = false;     // an op whose algorithm is chosen as if by timing
};

constexpr compute::OpName kTestTimed("TestTimed");

// The chosen algorithm decides by what its kernel multiplies, and every choice is another.
std::atomic<int> choices_made = 0;
const bool registered_timed =
    compute::RegisterOp(
        {.name = kTestTimed,
         .infer = compute::SameTypeAsInput,
         .gradient = [](const compute::Node&, absl::Span<const Value> dy) { return std::vector<Value>{dy[0]}; }}) &&
    compute::RegisterKernel(
        {.op = kTestTimed,
         .device_kind = "cpu",
         .dtypes = {DType::kFloat32},
         .make = [](const compute::KernelSpec& spec) -> absl::StatusOr<compute::Kernel> {
           const auto choose = []() -> absl::StatusOr<std::string> { return absl::StrCat(++choices_made); };
           ASSIGN_OR_RETURN(const std::string chosen,
                            spec.choices->FindOrChoose(absl::StrCat("TestTimed ", spec.input(0).ToString()), choose));
           const float factor = 1 + static_cast<float>(chosen.size() + chosen.back()) / 1024;
           return compute::Kernel{[n = spec.input(0).shape.num_elements(), factor](const compute::KernelArgs& args) {
             const auto* x = static_cast<const float*>(args.inputs[0]);
             std::transform(x, x + n, static_cast<float*>(args.outputs[0]), [&](float v) { return v * factor; });
             return absl::OkStatus();
           }};
         }});

// Two dense layers with batch normalization, dropout, a metric on the device and one on the host.
Model Network(const Case& c) {
  Model model;
  model.name = "network";
  model.synchronizes = c.synchronized;
  model.model_fn = [c](const ModelInputs& in) -> absl::StatusOr<ModelSpec> {
    compute::Layers layers(in.graph, in.dtype);
    const bool training = in.mode == Mode::kTrain;
    const int64_t n = in.features[0].shape().dim(0);
    const Value x = in.dtype == DType::kFloat32 ? in.features[0] : compute::Cast(in.features[0], in.dtype);
    Value y = layers.Dense(x, 5);
    if (c.timed) y = compute::Apply(kTestTimed, {y});
    y = compute::Relu(layers.BatchNormalization(y, {.training = training, .synchronized = c.synchronized}));
    if (training) y = compute::Dropout(y, 0.3, in.random_state, "dropout");
    y = layers.Dense(y, 1);
    if (in.dtype != DType::kFloat32) y = compute::Cast(y, DType::kFloat32);
    const Value errors = compute::Square(compute::Sub(compute::Reshape(y, {n}), in.labels[0]));
    const Value count = in.graph.Constant(Tensor::Scalar(static_cast<float>(n)));
    ModelSpec spec;
    spec.loss = compute::Mean(errors);
    spec.metrics = {{"mean_error", compute::Sum(errors), count}};
    spec.moving_averages = layers.moving_averages();
    if (in.mode == Mode::kEval) spec.predictions = {{"y", compute::Reshape(y, {n})}};
    if (training) spec.logged = {{"root", compute::Mean(compute::Sqrt(errors))}};
    return spec;
  };
  model.optimizer = [](const compute::UpdateInputs& inputs, absl::Span<const compute::VariableGradient> v) {
    return compute::Adam(inputs, v, {});
  };
  model.learning_rate = [](int64_t step) { return 0.05 / static_cast<double>(1 + step); };
  // Is not a sum over the shares: the largest error comes from one of them.
  model.host_metrics = [](absl::Span<const ShareResults> shares) -> std::vector<HostMetric> {
    double largest = 0;
    for (const ShareResults& share : shares) {
      for (int64_t i = 0; i < share.labels[0].shape().num_elements(); ++i) {
        const double error = share.predictions[0].data<float>()[i] - share.labels[0].data<float>()[i];
        largest = std::max(largest, std::abs(error));
      }
    }
    return {{"largest_error", largest, 1}};
  };
  return model;
}

// Epochs of 29 examples in batches of 10 and a last one of 9, or, with `few`, of 5 and a last one of 4: then some of 8
// replicas have none. If `skips`, one example of the second batch has a gradient that is not finite.
// Only `rows` are there.
InputFn Input(bool few, bool skips, const data::HeldRows& rows) {
  return [few, skips, rows](data::Position start) -> absl::StatusOr<data::BatchSourcePtr> {
    constexpr int kExamples = 29;
    Tensor x(DType::kFloat32, {kExamples, 3}), y(DType::kFloat32, {kExamples});
    for (int i = 0; i < 3 * kExamples; ++i) x.data<float>()[i] = std::sin(static_cast<float>(i));
    for (int i = 0; i < kExamples; ++i) y.data<float>()[i] = static_cast<float>(i % 3);
    if (skips) y.data<float>()[few ? 7 : 13] = 1e18f;
    return data::Batches(data::TensorSlices({{"", x}}, {{"", y}}),
                         {.batch_size = few ? 5 : 10, .start = start, .end_epoch = 3, .rows = rows});
  };
}

// All that a worker has shown and holds in the end.
struct Outcome {
  std::string status;
  std::vector<double> shown;
  EvalResults evaluated;
  std::vector<std::string> variables;  // bytes, the names in front
  bool operator==(const Outcome&) const = default;
};

class Recorder : public logs::Hook {
 public:
  explicit Recorder(std::vector<double>* shown) : shown_(shown) {}
  logs::StepRequest BeforeStep(int64_t, logs::TimePoint) override { return {.loss = true, .tensors = true}; }
  absl::Status AfterStep(const logs::StepInfo& step) override {
    shown_->push_back(*step.loss);
    for (const auto& [name, value] : step.tensors) shown_->push_back(value);
    return absl::OkStatus();
  }

 private:
  std::vector<double>* const shown_;
};

std::string NewDirectory() {
  static int counter = 0;
  const char* root = std::getenv("TEST_TMPDIR");
  return absl::StrCat(root ? root : "/tmp", "/workers-", getpid(), "-", ++counter);
}

EstimatorConfig ConfigOf(const Case& c, const std::string& model_dir) {
  EstimatorConfig config;
  config.model_dir = model_dir;
  config.grad_accum_steps = c.micro_batches;
  config.dtype = c.dtype;
  if (c.averages) config.ema_decay = 0.9, config.clip_norm = 0.5;
  // The norm of good gradients must be finite with the scale.
  if (c.skips) config.loss_scale = {.value = c.averages ? 0x1p40f : 0x1p80f, .dynamic = true};
  config.check_replicas_steps = 2;
  return config;
}

// Trains and evaluates on the devices of a strategy.
Outcome RunOn(std::unique_ptr<distribute::Strategy> strategy, const Case& c, bool few, const std::string& model_dir) {
  const EstimatorConfig config = ConfigOf(c, model_dir);
  Outcome outcome;
  std::vector<std::unique_ptr<logs::Hook>> hooks;
  hooks.push_back(std::make_unique<Recorder>(&outcome.shown));
  const auto estimator = Estimator::Create(Network(c), config, std::move(strategy));
  if (!estimator.ok()) return {estimator.status().ToString(), {}, {}, {}};
  const absl::Status trained =
      (*estimator)->Train(Input(few, c.skips, (*estimator)->held_rows(Mode::kTrain)), std::nullopt, hooks);
  const absl::StatusOr<EvalResults> results =
      (*estimator)->Evaluate(Input(few, false, (*estimator)->held_rows(Mode::kEval)), 7);
  outcome.status =
      absl::StrCat(trained.ToString(), ", ", results.status().ToString(), " at step ", (*estimator)->global_step());
  if (results.ok()) outcome.evaluated = *results;
  for (const char* name :
       {"dense/kernel", "dense/kernel/Adam", "dense/kernel/Adam_1", "dense_1/bias", "batch_normalization/gamma",
        "batch_normalization/moving_mean", "batch_normalization/moving_variance", "beta1_power", "global_step",
        "dense/kernel/ExponentialMovingAverage"}) {
    const absl::StatusOr<Tensor> value = (*estimator)->Variable(name);
    outcome.variables.push_back(name);
    if (!value.ok()) continue;
    outcome.variables.back().append(static_cast<const char*>(value->raw_data()), value->num_bytes());
  }
  return outcome;
}

Outcome InOneProcess(int num_replicas, const Case& c, bool few) {
  return RunOn(distribute::Strategy::Create({.num_replicas = num_replicas, .num_threads = 1}).value(), c, few,
               NewDirectory());
}

// Calls f(worker, strategy, model_dir) for each worker, in a thread of its own. The directory of all but the chief is
// one that cannot be.
template <typename F>
void OnEach(const std::vector<Share>& split, const std::string& model_dir, const F& f) {
  const auto exchanges = distribute::MakeMemoryExchanges(static_cast<int>(split.size()));
  std::vector<std::thread> threads;
  for (size_t w = 0; w < split.size(); ++w) {
    threads.emplace_back([&, w] {
      distribute::StrategyOptions options{.num_replicas = static_cast<int>(split.back().end), .num_threads = 1};
      options.workers = {exchanges[w].get(), split};
      f(static_cast<int>(w), distribute::Strategy::Create(options).value(), w == 0 ? model_dir : "/dev/null/none");
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// The outcome of each worker.
std::vector<Outcome> OnWorkers(const std::vector<Share>& split, const Case& c, bool few,
                               const std::string& model_dir = NewDirectory()) {
  std::vector<Outcome> outcomes(split.size());
  OnEach(split, model_dir, [&](int w, std::unique_ptr<distribute::Strategy> strategy, const std::string& dir) {
    outcomes[w] = RunOn(std::move(strategy), c, few, dir);
  });
  return outcomes;
}

// Equal parts for each of so many workers.
std::vector<Share> SplitAmong(int num_replicas, int workers) {
  std::vector<Share> split;
  for (int w = 0; w < workers; ++w) split.push_back(compute::ShareOf(num_replicas, w, workers));
  return split;
}

// Requires the same of all workers as of one process.
void RequireSame(int num_replicas, const std::vector<std::vector<Share>>& splits, const Case& c, bool few) {
  const Outcome one = InOneProcess(num_replicas, c, few);
  REQUIRE(one.status == absl::StrCat("OK, OK at step ", (few ? 18 : 9) - (c.skips ? 3 : 0)));
  REQUIRE(one.shown.size() == ((few ? 18 : 9) - (c.skips ? 3 : 0)) * (c.averages ? 5 : 4));
  for (const std::vector<Share>& split : splits) {
    for (const Outcome& outcome : OnWorkers(split, c, few)) {
      CAPTURE(num_replicas, split.size(), split[0].end);
      CHECK(outcome.status == one.status);
      CHECK(outcome.evaluated == one.evaluated);
      REQUIRE(outcome == one);
    }
  }
}

TEST_CASE("Workers that hold any part of the replicas have the bits of one process") {
  const int num_replicas = GENERATE(range(1, 9));
  RequireSame(num_replicas, distribute::AllSplits(num_replicas, 4), {}, /*few=*/false);
}

TEST_CASE("So they have with shares that are empty and whatever a step consists of") {
  const int num_replicas = GENERATE(2, 3, 4, 8);
  std::vector<std::vector<Share>> splits;
  for (int workers = 2; workers <= std::min(4, num_replicas); ++workers) {
    splits.push_back(SplitAmong(num_replicas, workers));
  }
  const Case c = GENERATE(Case{}, Case{.synchronized = true}, Case{.micro_batches = 2},
                          Case{.synchronized = true, .micro_batches = 3}, Case{.dtype = DType::kBFloat16},
                          Case{.skips = true}, Case{.skips = true, .averages = true});
  CAPTURE(c.synchronized, c.micro_batches, c.skips, c.averages, compute::DTypeName(c.dtype));
  RequireSame(num_replicas, splits, c, /*few=*/true);
}

TEST_CASE("All workers have the chief's choices of algorithms, and so have those who continue") {
  // 10 and 9 examples on 4 replicas: shares of 3 and 2, of which the chief does not have all. In the evaluation, too.
  const Case c{.timed = true};
  const std::string of_workers = NewDirectory(), of_one = NewDirectory(), file = "/algorithms.txt";
  choices_made = 0;
  const std::vector<Outcome> outcomes = OnWorkers(SplitAmong(4, 3), c, false, of_workers);
  const int made = choices_made;
  CHECK(made == 2);
  REQUIRE(files::MakeDirectories(of_one).ok());
  REQUIRE(files::WriteFileAtomically(of_one + file, files::ReadFile(of_workers + file, 1000).value()).ok());
  const Outcome one =
      RunOn(distribute::Strategy::Create({.num_replicas = 4, .num_threads = 1}).value(), c, false, of_one);
  CHECK(choices_made == made);
  for (const Outcome& outcome : outcomes) {
    CHECK(outcome.status == "OK, OK at step 9");
    CHECK(outcome == one);
  }
}

std::string FileIn(const std::string& model_dir, int step) {
  return files::ReadFile(absl::StrCat(model_dir, "/model.ckpt-", step, ".data-00000-of-00001"), 1 << 20).value();
}

TEST_CASE("A run that other workers continue ends with the checkpoint of one process") {
  const Case c{.dtype = DType::kBFloat16, .averages = true};
  const std::string whole = NewDirectory(), parts = NewDirectory();
  REQUIRE(RunOn(distribute::Strategy::Create({.num_replicas = 4, .num_threads = 1}).value(), c, false, whole).status ==
          "OK, OK at step 9");
  int64_t step = 0;
  for (const int workers : {4, 1, 3}) {
    step += 3;
    std::vector<absl::Status> statuses(workers);
    std::vector<int64_t> steps(workers);
    OnEach(SplitAmong(4, workers), parts, [&](int w, auto strategy, const std::string& dir) {
      const auto estimator = Estimator::Create(Network(c), ConfigOf(c, dir), std::move(strategy));
      statuses[w] = estimator.status();
      if (!estimator.ok()) return;
      statuses[w] = (*estimator)->Train(Input(false, false, (*estimator)->held_rows(Mode::kTrain)), step, {});
      steps[w] = (*estimator)->global_step();
    });
    CHECK(statuses == std::vector<absl::Status>(workers));
    CHECK(steps == std::vector<int64_t>(workers, step));
  }
  CHECK(FileIn(parts, 9) == FileIn(whole, 9));
}

TEST_CASE("What one worker is asked for from outside, all of them do after the same step") {
  const std::string model_dir = NewDirectory();
  std::vector<absl::Status> statuses(3);
  std::vector<int64_t> steps(3);
  OnEach(SplitAmong(4, 3), model_dir, [&](int w, auto strategy, const std::string& dir) {
    EstimatorConfig config = ConfigOf({}, dir);
    // After step 2 worker 1 is to save, after step 5 worker 2 is to stop.
    config.interruption = [w, calls = 0]() mutable {
      ++calls;
      if (w == 1 && calls == 2) return Interruption::kSave;
      return w == 2 && calls == 5 ? Interruption::kStop : Interruption::kNone;
    };
    const auto estimator = Estimator::Create(Network({}), config, std::move(strategy)).value();
    statuses[w] = estimator->Train(Input(false, false, estimator->held_rows(Mode::kTrain)), std::nullopt, {});
    steps[w] = estimator->global_step();
  });
  for (const absl::Status& status : statuses) {
    INFO(status);
    CHECK(absl::IsCancelled(status));
    CHECK_THAT(std::string(status.message()), Contains("stopped at step 5;"));
  }
  CHECK(steps == std::vector<int64_t>(3, 5));
  for (const int step : {0, 2, 5}) CHECK(FileIn(model_dir, step).size() > 100);
}

TEST_CASE("The error of one worker ends the training of all, and only that worker tells it") {
  std::vector<absl::Status> statuses(3);
  OnEach(SplitAmong(3, 3), NewDirectory(), [&](int w, auto strategy, const std::string& dir) {
    const auto estimator = Estimator::Create(Network({}), ConfigOf({}, dir), std::move(strategy)).value();
    const InputFn input = Input(false, false, estimator->held_rows(Mode::kTrain));
    // The last worker finds the fifth batch damaged.
    class Damaged : public data::BatchSource {
     public:
      explicit Damaged(data::BatchSourcePtr source) : source_(std::move(source)) {}
      const data::ElementSpec& spec() const override { return source_->spec(); }
      absl::StatusOr<std::optional<data::Batch>> Next() override {
        if (++calls_ == 5) return absl::DataLossError("a disk");
        return source_->Next();
      }

     private:
      const data::BatchSourcePtr source_;
      int calls_ = 0;
    };
    const InputFn damaged = [&](data::Position start) -> absl::StatusOr<data::BatchSourcePtr> {
      return std::make_unique<Damaged>(input(start).value());
    };
    statuses[w] = estimator->Train(w == 2 ? damaged : input, std::nullopt, {});
  });
  CHECK(statuses[2] == absl::DataLossError("a disk"));
  for (const int w : {0, 1}) {
    CHECK(absl::IsCancelled(statuses[w]));
    CHECK_THAT(std::string(statuses[w].message()), Contains("worker 2 has failed: a disk"));
  }
}

TEST_CASE("What is wrong with the chief's directory, every worker tells") {
  const std::string model_dir = NewDirectory();
  std::vector<absl::Status> statuses(2);
  OnEach(SplitAmong(2, 2), model_dir, [&](int w, auto strategy, const std::string& dir) {
    EstimatorConfig config = ConfigOf({}, dir);
    config.resume = Resume::kMust;
    statuses[w] = Estimator::Create(Network({}), config, std::move(strategy)).status();
  });
  for (const absl::Status& status : statuses) {
    CHECK(status == absl::NotFoundError(absl::StrCat("--resume=must: there is no checkpoint in ", model_dir)));
  }
}

}  // namespace
}  // namespace official::train
