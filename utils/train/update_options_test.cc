// What UpdateOptions do to the steps of an Estimator.

#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/compute/ops/array/array.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/optimizer/deferred_adam.h"
#include "utils/compute/ops/reduction/reduction.h"
#include "utils/train/checkpoint/checkpoint_dir.h"
#include "utils/train/estimator.h"
#include "utils/train/step.h"

namespace official::train {
namespace {

using Catch::Matchers::Contains;
using compute::DType;
using compute::Tensor;
using compute::Value;

constexpr int kFeatures = 3, kBatchSize = 4, kExamples = 40, kSteps = 12;
constexpr float kRate = 0.05f;

float Feature(int example, int i) { return 3 * std::sin(static_cast<float>(kFeatures * example + i)); }
float Label(int example) { return static_cast<float>(example % 3); }

// Fits x [batch, 3] * w to the labels [batch], half the mean of the squares.
Model Line() {
  return {.name = "line",
          .model_fn = [](const ModelInputs& in) -> absl::StatusOr<ModelSpec> {
            const Value w = in.graph.Variable({"w", {DType::kFloat32, {kFeatures}}, compute::Initializer::Normal(1)});
            const Value x = in.features[0];
            const Value y =
                compute::Sum(compute::Mul(x, compute::BroadcastTo(compute::ExpandDims(w, 0), x.shape())), {1});
            if (in.mode == Mode::kPredict) return ModelSpec{.loss = {}, .predictions = {{"y", y}}};
            const Value half = in.graph.Constant(Tensor::Scalar(0.5f));
            return ModelSpec{.loss = compute::Mul(half, compute::Mean(compute::Square(compute::Sub(y, in.labels[0]))))};
          },
          .optimizer = compute::GradientDescent,
          .learning_rate = [](int64_t) { return kRate; }};
}

absl::StatusOr<data::BatchSourcePtr> BatchesOf(const Tensor& x, const Tensor& y, data::Position start) {
  return data::Batches(data::TensorSlices({{"", x}}, {{"", y}}),
                       {.batch_size = kBatchSize, .start = start, .end_epoch = data::kEndless});
}

absl::StatusOr<data::BatchSourcePtr> Input(data::Position start) {
  Tensor x(DType::kFloat32, {kExamples, kFeatures}), y(DType::kFloat32, {kExamples});
  for (int e = 0; e < kExamples; ++e) {
    for (int i = 0; i < kFeatures; ++i) x.data<float>()[kFeatures * e + i] = Feature(e, i);
    y.data<float>()[e] = Label(e);
  }
  return BatchesOf(x, y, start);
}

// The same with a further batch, the fourth, whose loss is finite and whose gradients times 32768 are not.
absl::StatusOr<data::BatchSourcePtr> InputWithOverflow(data::Position start) {
  constexpr int kBefore = 3 * kBatchSize, kAll = kExamples + kBatchSize;
  Tensor x(DType::kFloat32, {kAll, kFeatures}), y(DType::kFloat32, {kAll});
  for (int row = 0; row < kAll; ++row) {
    const bool overflows = row >= kBefore && row < kBefore + kBatchSize;
    const int e = row < kBefore ? row : row - kBatchSize;
    for (int i = 0; i < kFeatures; ++i) x.data<float>()[kFeatures * row + i] = overflows ? 1e18f : Feature(e, i);
    y.data<float>()[row] = overflows ? 0 : Label(e);
  }
  return BatchesOf(x, y, start);
}

EstimatorConfig Config() {
  static int counter = 0;
  const char* root = std::getenv("TEST_TMPDIR");
  EstimatorConfig config;
  config.model_dir = absl::StrCat(root ? root : "/tmp", "/update-options-", getpid(), "-", ++counter);
  config.check_replicas_steps = 1;
  return config;
}

std::unique_ptr<Estimator> MakeEstimator(EstimatorConfig config, int num_replicas = 1, Model model = Line()) {
  auto strategy = distribute::Strategy::Create({.num_replicas = num_replicas, .num_threads = 2}).value();
  return Estimator::Create(std::move(model), std::move(config), std::move(strategy)).value();
}

std::vector<float> Values(const Estimator& estimator, const std::string& name) {
  const Tensor value = estimator.Variable(name).value();
  return {value.data<float>(), value.data<float>() + value.num_elements()};
}

// The variable after each step of a training in doubles, whose gradient `clip` changes; before the first as it is.
template <typename Clip>
std::vector<std::vector<double>> Trained(std::vector<double> w, const Clip& clip) {
  std::vector<std::vector<double>> all = {w};
  for (int step = 0; step < kSteps; ++step) {
    std::vector<double> gradient(kFeatures);
    for (int b = 0; b < kBatchSize; ++b) {
      const int e = (step * kBatchSize + b) % kExamples;
      double error = -Label(e);
      for (int i = 0; i < kFeatures; ++i) error += w[i] * Feature(e, i);
      for (int i = 0; i < kFeatures; ++i) gradient[i] += error * Feature(e, i) / kBatchSize;
    }
    clip(gradient);
    for (int i = 0; i < kFeatures; ++i) w[i] -= kRate * gradient[i];
    all.push_back(w);
  }
  return all;
}

// The variable before the first step.
std::vector<double> FirstValues() {
  Model still = Line();
  still.learning_rate = [](int64_t) { return 0.0; };
  const auto estimator = MakeEstimator(Config(), 1, std::move(still));
  REQUIRE(estimator->Train(Input, 1, {}).ok());
  const std::vector<float> first = Values(*estimator, "w");
  return {first.begin(), first.end()};
}

void CheckClose(const std::vector<float>& values, const std::vector<double>& expected) {
  REQUIRE(values.size() == expected.size());
  for (size_t i = 0; i < values.size(); ++i) CHECK(values[i] == Approx(expected[i]).epsilon(1e-4));
}

TEST_CASE("Gradients are clipped by their norm or by value, whatever the loss scale, the replicas and micro-batches") {
  EstimatorConfig config = Config();
  int clipped = 0;
  std::vector<double> expected;
  SECTION("by norm") {
    config.clip_norm = 2;
    expected = Trained(FirstValues(), [&](std::vector<double>& g) {
                 const double norm = std::sqrt(g[0] * g[0] + g[1] * g[1] + g[2] * g[2]);
                 clipped += norm > 2;
                 for (double& x : g) x *= 2 / std::max(norm, 2.0);
               }).back();
  }
  SECTION("by value") {
    config.clip_value = 1;
    expected = Trained(FirstValues(), [&](std::vector<double>& g) {
                 for (double& x : g) {
                   clipped += std::abs(x) > 1;
                   x = std::min(1.0, std::max(-1.0, x));
                 }
               }).back();
  }
  REQUIRE(clipped >= 3);
  REQUIRE(clipped < kSteps * kFeatures);
  const auto train = [&](const EstimatorConfig& options, int num_replicas) {
    EstimatorConfig own = options;
    own.model_dir = Config().model_dir;
    const auto estimator = MakeEstimator(own, num_replicas);
    REQUIRE(estimator->Train(Input, kSteps, {}).ToString() == "OK");
    return Values(*estimator, "w");
  };
  const std::vector<float> one = train(config, 1);
  CheckClose(one, expected);
  for (const int num_replicas : {2, 4}) CHECK(train(config, num_replicas) == one);
  config.loss_scale = {.value = 1024};
  CHECK(train(config, 1) == one);
  config.loss_scale = compute::DynamicLossScale();
  CHECK(train(config, 2) == one);
  config.grad_accum_steps = 2;
  CheckClose(train(config, 2), expected);
}

TEST_CASE("A norm that no gradient reaches changes no bit") {
  const auto plain = MakeEstimator(Config());
  EstimatorConfig config = Config();
  config.clip_norm = 1e6;
  const auto clipped = MakeEstimator(config);
  for (Estimator* e : {plain.get(), clipped.get()}) REQUIRE(e->Train(Input, kSteps, {}).ok());
  CHECK(Values(*plain, "w") == Values(*clipped, "w"));
}

TEST_CASE("A norm that is too large for float32 ends the run, or skips the step with a dynamic loss scale") {
  const auto large = [](data::Position start) -> absl::StatusOr<data::BatchSourcePtr> {
    Tensor x(DType::kFloat32, {kBatchSize, kFeatures}), y(DType::kFloat32, {kBatchSize});
    std::fill_n(x.data<float>(), kBatchSize * kFeatures, 1e-3f);
    std::fill_n(y.data<float>(), kBatchSize, 1e16f);  // gradients of 1e13
    return data::Batches(data::TensorSlices({{"", x}}, {{"", y}}),
                         {.batch_size = kBatchSize, .start = start, .end_epoch = data::kEndless});
  };
  EstimatorConfig config = Config();
  config.loss_scale = {.value = 1e8f};
  REQUIRE(MakeEstimator(config)->Train(large, 1, {}).ok());
  config.model_dir = Config().model_dir;
  config.clip_norm = 1;
  CHECK(MakeEstimator(config)->Train(large, 1, {}).code() == absl::StatusCode::kInternal);
  config.model_dir = Config().model_dir;
  config.loss_scale = compute::DynamicLossScale();
  config.loss_scale.value = 1e8f;
  const auto estimator = MakeEstimator(config);
  REQUIRE(estimator->Train(large, 1, {}).ok());
  CHECK(estimator->Variable("_run/loss_scale")->scalar<float>() < 1e8f);
}

// Reads rows of a table, as NeuMF does: with one replica Adam defers the steps of the rows that a batch does not read.
Model Table() {
  return {
      .name = "table",
      .model_fn = [](const ModelInputs& in) -> absl::StatusOr<ModelSpec> {
        const Value table = in.graph.Variable({"table", {DType::kFloat32, {9, 2}}, compute::Initializer::Normal(1)});
        Value ids =
            compute::Cast(compute::Slice(in.features[0], {0, 0}, {in.features[0].shape().dim(0), 1}), DType::kInt32);
        ids = compute::Reshape(compute::Mul(ids, ids), {in.features[0].shape().dim(0)});  // 0, 1 or 4
        ids = compute::CatchUpRows({{table, ids}}, {})[0];
        const Value y = compute::Sum(compute::Gather(table, ids), {1});
        return ModelSpec{.loss = compute::Mean(compute::Square(compute::Sub(y, in.labels[0])))};
      },
      .optimizer =
          [](const compute::UpdateInputs& inputs, absl::Span<const compute::VariableGradient> v) {
            const std::vector<compute::Node*> update = compute::Adam(inputs, v, {});
            compute::Graph& graph = *v[0].variable.graph();
            const compute::StepContext& step = graph.step_context();
            const bool defers = std::any_of(update.begin(), update.end(), [](const compute::Node* node) {
              return node->Is(compute::op::ApplyDeferredAdam);
            });
            if (defers != (step.num_replicas == 1 && !step.needs_whole_updates)) {
              graph.Fail(absl::InternalError(defers ? "the steps are deferred" : "the steps are not deferred"));
            }
            return update;
          },
      .learning_rate = [](int64_t) { return kRate; }};
}

TEST_CASE("Gradients of rows of a table are clipped as dense ones are") {
  EstimatorConfig config = Config();
  (GENERATE(true, false) ? config.clip_norm : config.clip_value) = 0.25;
  std::vector<std::vector<float>> tables;
  for (const int num_replicas : {1, 2}) {
    config.model_dir = Config().model_dir;
    const auto estimator = MakeEstimator(config, num_replicas, Table());
    REQUIRE(estimator->Train(Input, kSteps, {}).ToString() == "OK");
    tables.push_back(Values(*estimator, "table"));
    tables.push_back(Values(*estimator, "table/Adam_1"));
  }
  CHECK(tables[0] == tables[2]);
  CHECK(tables[1] == tables[3]);
  // The second moments of plain gradients are larger.
  EstimatorConfig plain = Config();
  const auto estimator = MakeEstimator(plain, 1, Table());
  REQUIRE(estimator->Train(Input, kSteps, {}).ok());
  CHECK(Values(*estimator, "table/Adam_1")[0] > tables[1][0]);
}

// The mean of the squares of the predictions' errors times 0.5: the loss of an evaluation.
double LossOf(const std::vector<double>& w) {
  double loss = 0;
  for (int e = 0; e < kExamples; ++e) {
    double error = -Label(e);
    for (int i = 0; i < kFeatures; ++i) error += w[i] * Feature(e, i);
    loss += 0.5 * error * error / kExamples;
  }
  return loss;
}

absl::StatusOr<data::BatchSourcePtr> EvalInput(data::Position) {
  ASSIGN_OR_RETURN(data::BatchSourcePtr batches, Input({}));
  return batches;
}

constexpr int kEvalBatches = kExamples / kBatchSize;

TEST_CASE("Moving averages follow the variables, and evaluations and predictions use them") {
  constexpr double kDecay = 0.75;
  const std::vector<std::vector<double>> trained = Trained(FirstValues(), [](std::vector<double>&) {});
  std::vector<double> average = trained[0];
  for (int step = 1; step <= kSteps; ++step) {
    for (int i = 0; i < kFeatures; ++i) average[i] -= (1 - kDecay) * (average[i] - trained[step][i]);
  }
  EstimatorConfig config = Config();
  config.ema_decay = kDecay;
  const auto check = [&](Estimator& estimator) {
    const auto results = estimator.Evaluate(EvalInput, kEvalBatches).value();
    CHECK(std::find_if(results.begin(), results.end(), [](const auto& r) { return r.first == "loss"; })->second ==
          Approx(LossOf(average)).epsilon(1e-4));
    CheckClose(Values(estimator, "w"), average);
  };
  std::vector<std::vector<float>> all;
  for (const int num_replicas : {1, 2}) {
    config.model_dir = Config().model_dir;
    const auto estimator = MakeEstimator(config, num_replicas);
    // An evaluation in between leaves what is trained as it is.
    REQUIRE(estimator->Train(Input, kSteps / 2, {}).ok());
    REQUIRE(estimator->Evaluate(EvalInput, kEvalBatches).ok());
    REQUIRE(estimator->Train(Input, kSteps, {}).ok());
    CheckClose(Values(*estimator, "w"), trained.back());
    all.push_back(Values(*estimator, "w"));
    all.push_back(Values(*estimator, "w/ExponentialMovingAverage"));
    check(*estimator);
  }
  CHECK(all[0] == all[2]);
  CHECK(all[1] == all[3]);

  // In two runs, of which the second begins with an evaluation.
  config.model_dir = Config().model_dir;
  REQUIRE(MakeEstimator(config)->Train(Input, kSteps / 2, {}).ok());
  {
    const auto second = MakeEstimator(config);
    REQUIRE(second->Evaluate(EvalInput, kEvalBatches).ok());
    REQUIRE(second->Train(Input, kSteps, {}).ok());
    CHECK(Values(*second, "w") == all[0]);
    CHECK(Values(*second, "w/ExponentialMovingAverage") == all[1]);
  }
  {
    EstimatorConfig reads = config;
    reads.ema_decay.reset();
    reads.trains = false;
    reads.use = ModelDir::Use::kRead;
    const auto reader = MakeEstimator(reads);
    const data::ElementSpec spec = Input({}).value()->spec();
    const auto y = reader->Predict(spec, {Tensor::Of<float>({1, kFeatures}, {1, 0, 0})}).value();
    CHECK(y[0].second.data<float>()[0] == Approx(average[0]).epsilon(1e-4));
    CHECK_THROWS(reader->Variable("w/ExponentialMovingAverage").value());  // no second copy
  }
  // Without the flag they are left out of what comes after.
  EstimatorConfig plain = config;
  plain.ema_decay.reset();
  const auto third = MakeEstimator(plain);
  REQUIRE(third->Train(Input, kSteps + 1, {}).ok());
  CHECK_FALSE(FindLatestCheckpoint(config.model_dir)->reader->Find("w/ExponentialMovingAverage").has_value());
  // And with it again they begin with the variables.
  const auto fourth = MakeEstimator(config);
  REQUIRE(fourth->Evaluate(EvalInput, kEvalBatches).ok());
  CHECK(Values(*fourth, "w") == Values(*third, "w"));
}

TEST_CASE("A skipped step leaves the variables and their averages") {
  const int num_replicas = GENERATE(1, 2);
  CAPTURE(num_replicas);
  EstimatorConfig config = Config();
  config.ema_decay = 0.5;
  const auto plain = MakeEstimator(config, num_replicas);
  REQUIRE(plain->Train(Input, kSteps, {}).ok());
  config.model_dir = Config().model_dir;
  config.loss_scale = {.value = 32768, .dynamic = true};
  const auto skipping = MakeEstimator(config, num_replicas);
  REQUIRE(skipping->Train(InputWithOverflow, kSteps, {}).ToString() == "OK");
  CHECK(Values(*skipping, kLossScale) == std::vector<float>{16384});  // one step was skipped
  for (const char* name : {"w", "w/ExponentialMovingAverage"}) CHECK(Values(*skipping, name) == Values(*plain, name));
}

TEST_CASE("Averages on several devices need an optimizer of one update") {
  Model model = Line();
  model.model_fn = [](const ModelInputs& in) -> absl::StatusOr<ModelSpec> {
    const auto variable = [&](const char* name) {
      return in.graph.Variable({name, {DType::kFloat32, {kBatchSize}}, compute::Initializer::Normal(1)});
    };
    return ModelSpec{.loss = compute::Mean(compute::Square(compute::Add(variable("a"), variable("b"))))};
  };
  model.optimizer = [](const compute::UpdateInputs& inputs, absl::Span<const compute::VariableGradient> variables) {
    std::vector<compute::Node*> nodes;
    for (const compute::VariableGradient& one : variables) {
      for (compute::Node* node : compute::GradientDescent(inputs, {one})) nodes.push_back(node);
    }
    return nodes;
  };
  EstimatorConfig config = Config();
  config.ema_decay = 0.5;
  const auto trained = MakeEstimator(config, 2, model)->Train(Input, 1, {});
  CHECK_THAT(trained.ToString(), Contains("its optimizer makes 2 updates"));
  config.model_dir = Config().model_dir;
  CHECK(MakeEstimator(config, 1, model)->Train(Input, 1, {}).ok());
}

TEST_CASE("Tables have the averages of dense updates") {
  EstimatorConfig config = Config();
  config.ema_decay = 0.5;
  std::vector<std::vector<float>> tables;
  for (const int num_replicas : {1, 2}) {
    config.model_dir = Config().model_dir;
    const auto estimator = MakeEstimator(config, num_replicas, Table());
    REQUIRE(estimator->Train(Input, kSteps, {}).ToString() == "OK");
    tables.push_back(Values(*estimator, "table"));
    tables.push_back(Values(*estimator, "table/ExponentialMovingAverage"));
  }
  EstimatorConfig plain = Config();
  const auto estimator = MakeEstimator(plain, 1, Table());  // which defers updates
  REQUIRE(estimator->Train(Input, kSteps, {}).ok());
  CHECK(tables[0] == Values(*estimator, "table"));
  CHECK(tables[0] == tables[2]);
  CHECK(tables[1] == tables[3]);
  CHECK(tables[0] != tables[1]);
}

}  // namespace
}  // namespace official::train
