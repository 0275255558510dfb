// A training step that computes its batch in several turns.

#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "utils/compute/ops/array/array.h"
#include "utils/compute/ops/dropout/dropout.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/matmul/matmul.h"
#include "utils/compute/ops/reduction/reduction.h"
#include "utils/logs/hook.h"
#include "utils/train/checkpoint/checkpoint_dir.h"
#include "utils/train/estimator.h"

namespace official::train {
namespace {

using Catch::Matchers::Contains;
using compute::DType;
using compute::Tensor;
using compute::Value;

// Fits x [batch, 3] * w to the labels [batch] with Adam and dropout. Each example counts as often as its second feature
// says, in the loss as in the moving average of the squared errors.
Model Weighted() {
  Model model;
  model.name = "weighted";
  model.model_fn = [](const ModelInputs& in) -> absl::StatusOr<ModelSpec> {
    const Value w = in.graph.Variable({"w", {DType::kFloat32, {3, 1}}, compute::Initializer::Zeros()});
    const Value average = in.graph.Variable({"average", {}, compute::Initializer::Zeros(), /*trainable=*/false});
    const Value x = compute::Dropout(in.features[0], 0.3, in.random_state, "dropout");
    const Value y = compute::Reshape(compute::MatMul(x, w), {x.shape().dim(0)});
    const Value errors = compute::Mul(compute::Square(compute::Sub(y, in.labels[0])), in.features[1]);
    const Value total = compute::Sum(errors), count = compute::Sum(in.features[1]);
    const Value loss = compute::Div(total, count);
    return ModelSpec{.loss = loss,
                     .predictions = {},
                     .metrics = {{"mean_error", total, count}},
                     .logged = {{"squared_loss", compute::Div(compute::Sum(compute::Square(errors)), count)}},
                     .moving_averages = {{average, loss}}};
  };
  model.optimizer = [](const compute::UpdateInputs& inputs, absl::Span<const compute::VariableGradient> v) {
    return compute::Adam(inputs, v, {});
  };
  model.learning_rate = [](int64_t) { return 0.05; };
  model.share = [](Mode mode, const data::Batch& batch, const compute::Share& examples, int) {
    BatchShare share = ShareOfRows(mode, batch, examples);
    share.weight = 0;
    for (int64_t i = 0; i < examples.size(); ++i) {
      share.weight += static_cast<int64_t>(share.features[1].data<float>()[i]);
    }
    return share;
  };
  return model;
}

// Weighted with shares that have rows without weight at their end, as many as there are examples before them: in a step
// of a micro-batch for each example, no two of these have the same shape.
Model Padded() {
  Model model = Weighted();
  model.share = [share = model.share](Mode mode, const data::Batch& batch, const compute::Share& examples, int parts) {
    BatchShare padded = share(mode, batch, examples, parts);
    for (data::Tensors* const tensors : {&padded.features, &padded.labels}) {
      for (Tensor& tensor : *tensors) {
        compute::Shape shape = tensor.shape();
        shape.set_dim(0, shape.dim(0) + examples.begin);
        const Tensor longer(tensor.dtype(), shape);
        std::copy_n(tensor.data<float>(), tensor.num_elements(), longer.data<float>());
        tensor = longer;
      }
    }
    return padded;
  };
  return model;
}

// Epochs of 23 examples in batches of 5 and a last one of 3, or of other numbers; the label of example `bad` is NaN.
InputFn Input(int bad = -1, int num_examples = 23, int batch_size = 5) {
  return [=](data::Position start) -> absl::StatusOr<data::BatchSourcePtr> {
    const Tensor x(DType::kFloat32, {num_examples, 3});
    const Tensor count(DType::kFloat32, {num_examples}), y(DType::kFloat32, {num_examples});
    for (int i = 0; i < 3 * num_examples; ++i) x.data<float>()[i] = std::sin(static_cast<float>(i));
    for (int i = 0; i < num_examples; ++i) {
      count.data<float>()[i] = static_cast<float>(1 + i % 4);
      y.data<float>()[i] = i == bad ? NAN : static_cast<float>(i % 3);
    }
    return data::Batches(data::TensorSlices({{"x", x}, {"count", count}}, {{"", y}}),
                         {.batch_size = batch_size, .start = start, .end_epoch = data::kEndless});
  };
}

std::string NewDirectory() {
  static int counter = 0;
  const char* root = std::getenv("TEST_TMPDIR");
  return absl::StrCat(root ? root : "/tmp", "/grad-accum-", getpid(), "-", ++counter);
}

std::unique_ptr<Estimator> MakeEstimator(int turns, int num_replicas, const std::string& model_dir = NewDirectory(),
                                         Model model = Weighted()) {
  EstimatorConfig config;
  config.model_dir = model_dir;
  config.grad_accum_steps = turns;
  config.check_replicas_steps = 1;
  auto strategy = distribute::Strategy::Create({.num_replicas = num_replicas, .num_threads = 2}).value();
  return Estimator::Create(std::move(model), std::move(config), std::move(strategy)).value();
}

// Keeps the loss of each step and the values that belong to it.
class Recorder : public logs::Hook {
 public:
  explicit Recorder(std::vector<double>* values) : values_(values) {}
  logs::StepRequest BeforeStep(int64_t, logs::TimePoint) override { return {.loss = true, .tensors = true}; }
  absl::Status AfterStep(const logs::StepInfo& step) override {
    values_->push_back(*step.loss);
    for (const auto& [name, value] : step.tensors) values_->push_back(value);
    return absl::OkStatus();
  }

 private:
  std::vector<double>* const values_;
};

constexpr const char* kVariables[] = {"w", "w/Adam", "w/Adam_1", "beta1_power", "beta2_power", "average"};

// What training over two epochs and a part of a third has shown, then the variables.
std::vector<double> Train(Estimator& estimator) {
  std::vector<double> values;
  std::vector<std::unique_ptr<logs::Hook>> hooks;
  hooks.push_back(std::make_unique<Recorder>(&values));
  REQUIRE(estimator.Train(Input(), 12, hooks).ToString() == "OK");
  CHECK(estimator.global_step() == 12);
  CHECK(estimator.state().position == data::Position{2, 10});
  for (const char* name : kVariables) {
    const Tensor value = estimator.Variable(name).value();
    values.insert(values.end(), value.data<float>(), value.data<float>() + value.shape().num_elements());
  }
  return values;
}

TEST_CASE("A batch in micro-batches is the whole batch, on any number of devices") {
  const std::vector<double> whole = Train(*MakeEstimator(1, 1));
  REQUIRE(whole.size() == 12 * 4 + 3 * 3 + 3);
  for (const int num_replicas : {1, 2, 3}) {
    for (const int turns : {2, 3, 7}) {  // with 7, some have no examples
      CAPTURE(num_replicas, turns);
      const std::vector<double> values = Train(*MakeEstimator(turns, num_replicas));
      REQUIRE(values.size() == whole.size());
      for (size_t i = 0; i < whole.size(); ++i) CHECK(values[i] == Approx(whole[i]).epsilon(1e-5));
    }
  }
}

TEST_CASE("A step may have micro-batches of very many shapes") {
  constexpr int kMicroBatches = 300;
  const auto trained = [&](Model model) {
    const auto estimator = MakeEstimator(kMicroBatches, 1, NewDirectory(), std::move(model));
    REQUIRE(estimator->Train(Input(-1, kMicroBatches, kMicroBatches), 2, {}).ToString() == "OK");
    CHECK(estimator->Variable("global_step")->scalar<int64_t>() == 2);
    return estimator->Variable("w").value();
  };
  const Tensor padded = trained(Padded()), whole = trained(Weighted());
  for (int i = 0; i < 3; ++i) CHECK(padded.data<float>()[i] == Approx(whole.data<float>()[i]).epsilon(1e-5));
}

TEST_CASE("A run in micro-batches that was stopped ends with the same bits, and leaves no sums") {
  const int num_replicas = GENERATE(1, 2);
  const auto whole = MakeEstimator(3, num_replicas);
  Train(*whole);
  const std::string model_dir = NewDirectory();
  for (const int64_t step : {1, 4, 7}) {
    REQUIRE(MakeEstimator(3, num_replicas, model_dir)->Train(Input(), step, {}).ok());
  }
  const auto rest = MakeEstimator(3, num_replicas, model_dir);
  CHECK(rest->global_step() == 7);
  REQUIRE(rest->Train(Input(), 12, {}).ok());
  for (const char* name : kVariables) {
    CHECK(rest->Variable(name)->flat<float>() == whole->Variable(name)->flat<float>());
  }
  const auto reader = FindLatestCheckpoint(model_dir).value().reader;
  for (const StoredTensor& tensor : reader->ListTensors()) CHECK_THAT(tensor.name, !Contains("_local"));
}

TEST_CASE("A number that is not finite in any micro-batch ends the run before its step") {
  const int num_replicas = GENERATE(1, 2), example = GENERATE(10, 12, 14);  // of the third batch
  CAPTURE(num_replicas, example);
  const auto estimator = MakeEstimator(3, num_replicas);
  const absl::Status status = estimator->Train(Input(example), 12, {});
  CHECK(status.code() == absl::StatusCode::kInternal);
  CHECK_THAT(std::string(status.message()), Contains("step 3: the first tensor that is not finite is labels (Input"));
  CHECK(estimator->global_step() == 2);
  const auto good = MakeEstimator(3, num_replicas);
  REQUIRE(good->Train(Input(), 2, {}).ok());
  for (const char* name : kVariables) {
    CHECK(estimator->Variable(name)->flat<float>() == good->Variable(name)->flat<float>());
  }
}

}  // namespace
}  // namespace official::train
